-- SPDX-FileCopyrightText: The lunshare authors
-- SPDX-License-Identifier: Apache-2.0
-- wrk asks for these paths in turn; ids of volumes come from the file IDS names.
local ids, n = {}, 0
for line in io.lines(os.getenv("IDS")) do ids[#ids + 1] = line end

function request()
  n = n + 1
  if n % 3 == 0 then return wrk.format("GET", "/v3/volumes/" .. ids[math.random(#ids)]) end
  if n % 3 == 1 then return wrk.format("GET", "/v3/volumes?limit=10") end
  return wrk.format("GET", "/v3/volumes/detail?limit=3")
end
