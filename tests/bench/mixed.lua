-- SPDX-FileCopyrightText: The lunshare authors
-- SPDX-License-Identifier: Apache-2.0
-- One client for each of wrk's threads (as many threads as connections). One step
-- in five is an attach cycle: attach with a connector, complete, detach. The others
-- read. IDS names a file of volumes to read, SHARED one of volumes to attach, one
-- for each client. Steps that were refused are counted and printed at the end.
local function lines_of(name)
  local found = {}
  for line in io.lines(os.getenv(name)) do found[#found + 1] = line end
  return found
end

local count, threads = 0, {}
function setup(thread)
  count = count + 1
  thread:set("number", count)
  threads[count] = thread
end

function init()
  ids, volume = lines_of("IDS"), lines_of("SHARED")[number]
  attached, step, refused, cycles = nil, "read", 0, 0
  math.randomseed(number)
end

local json = {["Content-Type"] = "application/json",
              ["X-Auth-Token"] = os.getenv("TOKEN"),
              ["OpenStack-API-Version"] = "volume 3.71"}

local function read()
  local kind = math.random(3)
  if kind == 1 then return wrk.format("GET", "/v3/volumes/" .. ids[math.random(#ids)]) end
  if kind == 2 then return wrk.format("GET", "/v3/volumes?limit=10") end
  return wrk.format("GET", "/v3/volumes/detail?limit=3")
end

function request()
  if step == "complete" then
    return wrk.format("POST", "/v3/attachments/" .. attached .. "/action", json,
                      '{"os-complete": null}')
  elseif step == "detach" then
    return wrk.format("DELETE", "/v3/attachments/" .. attached, json)
  elseif math.random(5) == 1 then
    step = "attach"
    return wrk.format("POST", "/v3/attachments", json, string.format(
      '{"attachment": {"volume_uuid": "%s", "mode": "ro", "connector":'
      .. ' {"initiator": "iqn.1994-05.com.example:c%d", "host": "c%d"}}}',
      volume, number, number))
  end
  return read()
end

function response(status, headers, body)
  if status >= 400 then refused = refused + 1 end
  if step == "attach" then
    attached = body:match('"id":%s*"([^"]+)"')
    step = status == 200 and "complete" or "read"
  elseif step == "complete" then
    step = "detach"
  elseif step == "detach" then
    step, cycles = "read", cycles + 1
  end
end

function done(summary, latency)
  local no, all = 0, 0
  for _, thread in ipairs(threads) do
    no, all = no + thread:get("refused"), all + thread:get("cycles")
  end
  print(string.format("cycles: %d refused: %d p50: %.2f p99: %.2f ms", all, no,
                      latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
