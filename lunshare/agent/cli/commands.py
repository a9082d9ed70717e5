# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One function per command: send requests to the node, print tables.

Each returns the answer of the node (for ``--json``), the text and the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from lunshare.agent.cli.client import NodeClient, Refused, every
from lunshare.agent.cli.output import write
from lunshare.agent.cli.table import table

_GIB = 1024**3
_DIGITS = 18  # of a count
_WATCH_SECONDS, _WAIT_SECONDS = 2.0, 1.0
_CLEAR = "\x1b[H\x1b[2J"  # of a terminal: to the first line, and nothing below

DONE, REFUSED, USAGE, UNREACHABLE, NO_BACKEND, DISAGREEMENT, HOST, PENDING = range(8)

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_ERROR_KEYS = ("id", "name", "status", "status_reason")
_DRIFT = {True: "drift", False: "repaired"}
_RESULT = {True: "passes", False: "FAILS"}
_WEIGHT = ("name", "value", "multiplier", "weight")


class Result(NamedTuple):
    """The result of a command."""

    answer: Any
    text: str
    code: int = DONE

    def shown(self, as_json: bool) -> str:
        """Return what is printed of it."""
        return json.dumps(self.answer, indent=2) if as_json else self.text


def pools(node: NodeClient, arguments: Namespace) -> Result:
    """List the pools: capacity in GiB, capabilities and problems."""
    pools = node.get("/scheduler-stats/get_pools?detail=true")["pools"]
    head = ("POOL", "STATE", "TOTAL", "FREE", "PROVISIONED", "VOLUMES", "WIPING")
    rows = [_pool(pool["name"], pool["capabilities"]) for pool in pools]
    return Result(pools, table((*head, "PROTOCOL", "SHARED", "WHY"), rows))


def _pool(name: str, caps: dict[str, Any]) -> list[Any]:
    closed = caps["backend_state"] == "up" and caps.get("state_reason")
    return [
        name,
        "closed" if closed else caps["backend_state"],
        caps["total_capacity_gb"],
        caps["free_capacity_gb"],
        caps["provisioned_capacity_gb"],
        caps["total_volumes"],
        caps.get("wipes_left_gb"),
        caps["storage_protocol"],
        caps["multiattach"],
        caps.get("state_reason"),
    ]


def explain(node: NodeClient, arguments: Namespace) -> Result:
    """Show which pool a volume would get, and why each other pool would not be used."""
    volume = {"size": arguments.size, "volume_type": arguments.type}
    volume["availability_zone"] = arguments.zone
    explanation = node.post("/scheduler-stats/explain", {"volume": volume})[
        "explanation"
    ]
    results = [
        [pool["name"], result["name"], _RESULT[result["passed"]], result["reason"]]
        for pool in explanation["pools"]
        for result in pool["filters"]
    ]
    weights = [
        [pool["name"], *(result[key] for key in _WEIGHT)]
        for pool in explanation["pools"]
        for result in pool["weighers"]
    ]
    lines = [f"chosen: {explanation['chosen'] or 'none'}", ""]
    lines += [table(("POOL", "FILTER", "RESULT", "REASON"), results)]
    if weights:
        head = ("POOL", "WEIGHER", "VALUE", "MULTIPLIER", "WEIGHT")
        lines += ["", table(head, weights)]
    return Result(
        explanation, "\n".join(lines), DONE if explanation["chosen"] else NO_BACKEND
    )


def errors(node: NodeClient, arguments: Namespace) -> Result:
    """List volumes, snapshots and attachments with the reason of their status."""
    items = [
        {"kind": kind, **{key: item.get(key) for key in _ERROR_KEYS}}
        for kind in ("volume", "snapshot", "attachment")
        for item in _every(node, f"{kind}s")
        if item.get("status_reason")
    ]
    rows = [list(item.values()) for item in items]
    return Result(items, table(("KIND", "ID", "NAME", "STATUS", "REASON"), rows))


def _every(node: NodeClient, resource: str) -> Iterator[dict[str, Any]]:
    """Yield every item of a resource in all projects, page by page."""
    query = {"all_tenants": "1", "sort": "created_at:asc"}
    while True:
        page = node.get(f"/{resource}/detail?{urlencode(query)}")
        yield from page[resource]
        if f"{resource}_links" not in page:
            return
        query["marker"] = page[resource][-1]["id"]


def hosts(node: NodeClient, arguments: Namespace) -> Result:
    """List which host has which volume, in which mode, with which session."""
    result = _hosts(node, arguments.volume)
    with contextlib.suppress(KeyboardInterrupt):
        while arguments.watch and write(_screen(result.shown(arguments.json))):
            time.sleep(_WATCH_SECONDS)
            result = _hosts(node, arguments.volume)
    return result


def _screen(text: str) -> str:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return f"{_CLEAR}{text}" if is_terminal else f"{text}\n"


def _hosts(node: NodeClient, volume: str | None) -> Result:
    condition = {"volume_id": volume_id(node, volume)} if volume else {}
    hosts = list(every(node, "hosts", **condition))
    rows = [_host(host) for host in hosts]
    head = ("VOLUME", "HOST", "INITIATOR", "MODE", "STATUS", "SESSIONS", "ADDRESS")
    more = ("KERNEL", "LEASE", "REFUSED", "KEY", "FENCE", "VERIFIED", "PROBLEM")
    text = table((*head, *more), rows)
    wrong = any(host["problem"] for host in hosts)
    return Result(hosts, text, DISAGREEMENT if wrong else DONE)


def verify(node: NodeClient, arguments: Namespace) -> Result:
    """Compare the live targets with the database, and say what differs."""
    body: dict[str, Any] = {"repair": arguments.repair}
    if arguments.volume:
        body["volume_id"] = volume_id(node, arguments.volume)
    answer = node.post("/lunshare/verify", {"verify": body})["verify"]
    nothing = {"kind": None, "initiator": None}
    rows = [
        [
            target["volume_id"],
            _DRIFT[drift["left"]] if drift["kind"] else target["status"],
            drift["kind"],
            drift["initiator"],
            drift["what"],
        ]
        for target in answer["targets"]
        for drift in [
            *target["drift"],
            *([{**nothing, "what": target["problem"]}] if target["problem"] else []),
        ]
    ]
    counts = answer["counts"]
    text = ", ".join(f"{number} {status}" for status, number in counts.items())
    if rows:
        head = ("VOLUME", "STATUS", "KIND", "INITIATOR", "WHAT")
        text = f"{table(head, rows)}\n\n{text}"
    if counts["drift"]:
        return Result(answer, text, DISAGREEMENT)
    return Result(answer, text, PENDING if counts["unverified"] else DONE)


def count(text: str) -> int:
    """Return a whole number of 1 or more, of the command line."""
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")


def volume_id(node: NodeClient, name: str) -> str:
    """Return the id of a volume, given its id or its name."""
    if _UUID.fullmatch(name):
        return name
    query = urlencode({"name": name, "all_tenants": 1})
    volumes = node.get(f"/volumes?{query}")["volumes"] if name else []
    if len(volumes) == 1:
        return str(volumes[0]["id"])
    raise Refused(
        f"{len(volumes)} volumes are named {name!r}; give an id of: "
        + ", ".join(volume["id"] for volume in volumes)
        if volumes
        else f"no volume has the id or the name {name!r}"
    )


def _host(host: dict[str, Any]) -> list[Any]:
    return [
        host["volume_name"] or host["volume_id"],
        host["host"],
        host["initiator"],
        host["mode"],
        host["status"],
        host["sessions"],
        ",".join(host["addresses"]),
        host["allowed"],
        _lease(host["lease"]),
        host["refused_mib"],
        _key(host),
        host["fence"],
        (host["verified_at"] or "").partition(".")[0],
        host["problem"],
    ]


def _key(host: dict[str, Any]) -> str | None:
    """Return the keys of its reservation, with a star if it holds it."""
    keys = ",".join(host["reservation_keys"])
    return f"{keys}*" if host["reservation"] else keys or None


def _lease(lease: dict[str, Any] | None) -> str | None:
    """Return the seconds that a lease has left, or how it has ended."""
    if lease is None:
        return None
    if lease["status"] != "running":
        return str(lease["status"])
    return f"{lease['seconds_left']:.0f}s"


def handover(node: NodeClient, arguments: Namespace) -> Result:
    """Hand the write access of a volume over; without --to show the latest handover."""
    volume = volume_id(node, arguments.volume)
    hosts = hosts_of(node, volume)
    if arguments.to is None:
        answer = node.get(f"/volumes/{volume}/handover")
    else:
        fields = {"to": attachment_id(hosts, arguments.to), "force": arguments.force}
        if arguments.source is not None:
            fields["from"] = attachment_id(hosts, arguments.source)
        answer = node.post(f"/volumes/{volume}/action", {"lunshare:handover": fields})
    latest, generation = answer["handover"], answer["fencing_generation"]
    names = {host["attachment_id"]: host["host"] for host in hosts}
    rows = [_handover(latest, names, generation)] if latest else []
    head = ("STATUS", "FROM", "TO", "STARTED", "FENCED", "PROMOTED", "GENERATION")
    text = table((*head, "REASON"), rows)
    pending = latest is not None and latest["status"] != "done"
    return Result(answer, text, PENDING if pending else DONE)


def _handover(
    latest: dict[str, Any], names: dict[str, str | None], generation: int
) -> list[Any]:
    leaving = [names.get(attachment) or attachment for attachment in latest["from"]]
    return [
        latest["status"],
        ",".join(leaving),
        names.get(latest["to"]) or latest["to"],
        *(latest[key] for key in ("started_at", "fenced_at", "promoted_at")),
        generation,
        latest["reason"],
    ]


def hosts_of(node: NodeClient, volume: str) -> list[dict[str, Any]]:
    """Return a line for each host of a volume, given its id."""
    return list(every(node, "hosts", volume_id=volume))


def attachment_id(hosts: list[dict[str, Any]], name: str) -> str:
    """Return the id of an attachment, given it, or its host or initiator.

    Hosts name themselves, also like the id of another one's attachment.
    """
    attached = [host for host in hosts if host["attachment_id"]]
    lowered = name.lower()  # names of computers have no case
    ids = {
        host["attachment_id"]
        for host in attached
        if lowered in ((host["host"] or "").lower(), host["initiator"])
    }
    if name in [host["attachment_id"] for host in attached]:
        return name
    if len(ids) == 1:
        return str(ids.pop())
    raise Refused(
        f"{name!r} has {len(ids)} attachments of the volume; give an id of: "
        + ", ".join(sorted(ids))
        if ids
        else f"no attachment of the volume has the id, host or initiator {name!r}:"
        " see lunshare hosts"
    )


def fence(node: NodeClient, arguments: Namespace) -> Result:
    """Take the access of a host to every volume of the node, and show the proof."""
    body = {"fence": {"writes_only": arguments.writes}}
    return _fenced(node.put(_fence_path(arguments), body)["fence"])


def unfence(node: NodeClient, arguments: Namespace) -> Result:
    """Give a host back what its attachments ask for."""
    return _fenced(node.delete(_fence_path(arguments))["fence"])


def fences(node: NodeClient, arguments: Namespace) -> Result:
    """List the hosts that are fenced, with the proof for each volume."""
    fences = list(every(node, "fences"))
    pending = any(fence["status"] != "fenced" for fence in fences)
    return Result(fences, _fences(fences), PENDING if pending else DONE)


def _fence_path(arguments: Namespace) -> str:
    return f"/lunshare/fences/{quote(arguments.host, safe='')}"


def _fenced(fence: dict[str, Any]) -> Result:
    is_whole = fence["status"] in ("fenced", "unfenced")
    return Result(fence, _fences([fence]), DONE if is_whole else PENDING)


def _fences(fences: list[dict[str, Any]]) -> str:
    """Return a line for each volume of a host, one for a host without volumes."""
    keys = ("volume_id", "initiator", "mode", "status", "fenced_at")
    nothing = dict.fromkeys((*keys, "fencing_generation", "reason"))
    rows = [
        [
            fence["host"],
            fence["fence"],
            *(line[key] for key in keys),
            line["fencing_generation"],
            line["reason"],
        ]
        for fence in fences
        for line in fence["volumes"] or [{**nothing, "status": fence["status"]}]
    ]
    head = ("HOST", "FENCE", "VOLUME", "INITIATOR", "MODE", "STATUS", "FENCED")
    return table((*head, "GENERATION", "REASON"), rows)


def orphans(node: NodeClient, arguments: Namespace) -> Result:
    """List exports, disks and snapshots that lunshare created and that have no row."""
    orphans = node.get("/lunshare/orphans")["orphans"]
    rows = [
        [orphan[key] for key in ("kind", "id", "backend", "where")]
        for orphan in orphans
    ]
    return Result(orphans, table(("KIND", "ID", "BACKEND", "WHERE"), rows))


def recover(node: NodeClient, arguments: Namespace) -> Result:
    """Recover a volume from an orphaned disk: it keeps its id and is available."""
    body = {
        "id": arguments.volume,
        "name": arguments.name,
        "volume_type": arguments.type,
    }
    volume = node.post("/lunshare/orphans", {"volume": body})["volume"]
    return Result(volume, f"volume {volume['id']} of {volume['size']} GiB is recovered")


def delete_orphan(node: NodeClient, arguments: Namespace) -> Result:
    """Delete one orphan; without --yes it only shows what would be deleted."""
    for orphan in node.get("/lunshare/orphans")["orphans"]:
        if (orphan["kind"], orphan["id"]) == (arguments.kind, arguments.id):
            break
    else:
        raise Refused(
            f"there is no orphaned {arguments.kind} {arguments.id}:"
            " see lunshare orphans"
        )
    if not arguments.yes:
        text = f"would delete: {orphan['where']}\nnothing is deleted without --yes"
        return Result(orphan, text)
    node.delete(f"/lunshare/orphans/{arguments.kind}/{arguments.id}")
    return Result(orphan, f"deleted: {orphan['where']}")


def wipes(node: NodeClient, arguments: Namespace) -> Result:
    """List deleted disks that are still being wiped; sizes are in GiB."""
    wipes = node.get("/lunshare/wipes")["wipes"]
    whole = sum(wipe["left"] for wipe in wipes)
    while arguments.wait and wipes:
        time.sleep(_WAIT_SECONDS)
        wipes = node.get("/lunshare/wipes")["wipes"]
        remaining = sum(wipe["left"] for wipe in wipes)
        whole = max(whole, remaining)
        arguments.bar.part = 1 - remaining / whole if whole else 0.0
    rows = [
        [wipe["name"], wipe["backend"], _gib(wipe["size"]), _gib(wipe["left"])]
        for wipe in wipes
    ]
    return Result(wipes, table(("NAME", "BACKEND", "SIZE", "LEFT"), rows))


def messages(node: NodeClient, arguments: Namespace) -> Result:
    """List why volumes could not be created, in all projects, newest first."""
    query = urlencode({"all_tenants": 1, "limit": arguments.limit})
    messages = node.get(f"/messages?{query}")["messages"]
    rows = [
        [
            message["created_at"].partition(".")[0],
            message["message_level"],
            message["request_id"],
            message.get("resource_uuid"),
            message["user_message"],
        ]
        for message in messages
    ]
    head = ("TIME", "LEVEL", "REQUEST", "RESOURCE", "MESSAGE")
    return Result(messages, table(head, rows))


def _gib(size: int) -> float:
    return round(size / _GIB, 2)
