# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One function per command: send requests to the node, print tables.

Each returns the answer of the node (for ``--json``), the text and the exit code.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from lunshare.agent.cli.client import Node, Refused
from lunshare.agent.cli.table import table

_GIB = 1024**3

DONE, REFUSED, USAGE, UNREACHABLE, NO_BACKEND, DISAGREEMENT, HOST = range(7)

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_ERROR_KEYS = ("id", "name", "status", "status_reason")
_RESULT = {True: "passes", False: "FAILS"}
_WEIGHT = ("name", "value", "multiplier", "weight")


class Result(NamedTuple):
    """The result of a command."""

    answer: Any
    text: str
    code: int = DONE


def pools(node: Node, asked: Namespace) -> Result:
    """List the pools: capacity, capabilities and problems."""
    found = node.get("/scheduler-stats/get_pools?detail=true")["pools"]
    head = ("POOL", "STATE", "TOTAL", "FREE", "PROVISIONED", "VOLUMES", "WIPING")
    rows = [_pool(pool["name"], pool["capabilities"]) for pool in found]
    return Result(found, table((*head, "PROTOCOL", "SHARED", "WHY"), rows))


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


def explain(node: Node, asked: Namespace) -> Result:
    """Show which pool a volume would get, and why each other pool would not be used."""
    volume = {"size": asked.size, "volume_type": asked.type}
    volume["availability_zone"] = asked.zone
    found = node.post("/scheduler-stats/explain", {"volume": volume})["explanation"]
    results = [
        [pool["name"], each["name"], _RESULT[each["passed"]], each["reason"]]
        for pool in found["pools"]
        for each in pool["filters"]
    ]
    weights = [
        [pool["name"], *(each[key] for key in _WEIGHT)]
        for pool in found["pools"]
        for each in pool["weighers"]
    ]
    lines = [f"chosen: {found['chosen'] or 'none'}", ""]
    lines += [table(("POOL", "FILTER", "RESULT", "REASON"), results)]
    if weights:
        head = ("POOL", "WEIGHER", "VALUE", "MULTIPLIER", "WEIGHT")
        lines += ["", table(head, weights)]
    return Result(found, "\n".join(lines), DONE if found["chosen"] else NO_BACKEND)


def errors(node: Node, asked: Namespace) -> Result:
    """List volumes, snapshots and attachments with the reason of their status."""
    found = [
        {"kind": kind, **{key: each.get(key) for key in _ERROR_KEYS}}
        for kind in ("volume", "snapshot", "attachment")
        for each in _every(node, f"{kind}s")
        if each.get("status_reason")
    ]
    rows = [list(each.values()) for each in found]
    return Result(found, table(("KIND", "ID", "NAME", "STATUS", "REASON"), rows))


def _every(node: Node, resource: str) -> Iterator[dict[str, Any]]:
    """Yield every item of a resource in all projects, page by page."""
    query = {"all_tenants": "1", "sort": "created_at:asc"}
    while True:
        found = node.get(f"/{resource}/detail?{urlencode(query)}")
        yield from found[resource]
        if f"{resource}_links" not in found:
            return
        query["marker"] = found[resource][-1]["id"]


def hosts(node: Node, asked: Namespace) -> Result:
    """List which host has which volume, in which mode, with which session."""
    which = {"volume_id": volume_id(node, asked.volume)} if asked.volume else {}
    query = urlencode(which)
    found = node.get(f"/lunshare/hosts?{query}")["hosts"]
    rows = [_host(each) for each in found]
    head = ("VOLUME", "HOST", "INITIATOR", "MODE", "STATUS", "SESSIONS", "ADDRESS")
    text = table((*head, "KERNEL", "PROBLEM"), rows)
    wrong = any(each["problem"] for each in found)
    return Result(found, text, DISAGREEMENT if wrong else DONE)


def volume_id(node: Node, name: str) -> str:
    """Return the id of a volume, given its id or its name."""
    if _UUID.fullmatch(name):
        return name
    query = urlencode({"name": name, "all_tenants": 1})
    found = node.get(f"/volumes?{query}")["volumes"]
    if len(found) == 1:
        return str(found[0]["id"])
    raise Refused(
        f"{len(found)} volumes are named {name!r}; give an id of: "
        + ", ".join(each["id"] for each in found)
        if found
        else f"no volume has the id or the name {name!r}"
    )


def _host(shown: dict[str, Any]) -> list[Any]:
    return [
        shown["volume_name"] or shown["volume_id"],
        shown["host"],
        shown["initiator"],
        shown["mode"],
        shown["status"],
        shown["sessions"],
        ",".join(shown["addresses"]),
        shown["allowed"],
        shown["problem"],
    ]


def orphans(node: Node, asked: Namespace) -> Result:
    """List exports, disks and snapshots that lunshare created and that have no row."""
    found = node.get("/lunshare/orphans")["orphans"]
    rows = [[each[key] for key in ("kind", "id", "backend", "where")] for each in found]
    return Result(found, table(("KIND", "ID", "BACKEND", "WHERE"), rows))


def recover(node: Node, asked: Namespace) -> Result:
    """Recover a volume from an orphaned disk. It keeps its id and is available."""
    body = {"id": asked.volume, "name": asked.name, "volume_type": asked.type}
    volume = node.post("/lunshare/orphans", {"volume": body})["volume"]
    return Result(volume, f"volume {volume['id']} of {volume['size']} GiB is recovered")


def delete_orphan(node: Node, asked: Namespace) -> Result:
    """Delete one orphan. Without --yes it only shows what would be deleted."""
    for each in node.get("/lunshare/orphans")["orphans"]:
        if (each["kind"], each["id"]) == (asked.kind, asked.id):
            break
    else:
        raise Refused(
            f"there is no orphaned {asked.kind} {asked.id}: see lunshare orphans"
        )
    if not asked.yes:
        text = f"would delete: {each['where']}\nnothing is deleted without --yes"
        return Result(each, text)
    node.delete(f"/lunshare/orphans/{asked.kind}/{asked.id}")
    return Result(each, f"deleted: {each['where']}")


def wipes(node: Node, asked: Namespace) -> Result:
    """List deleted disks that are still being wiped; sizes are in GiB."""
    found = node.get("/lunshare/wipes")["wipes"]
    rows = [
        [each["name"], each["backend"], _gib(each["size"]), _gib(each["left"])]
        for each in found
    ]
    return Result(found, table(("NAME", "BACKEND", "SIZE", "LEFT"), rows))


def messages(node: Node, asked: Namespace) -> Result:
    """List why volumes could not be created, in all projects, newest first."""
    query = urlencode({"all_tenants": 1, "limit": asked.limit})
    found = node.get(f"/messages?{query}")["messages"]
    rows = [
        [
            each["created_at"].partition(".")[0],
            each["message_level"],
            each["request_id"],
            each.get("resource_uuid"),
            each["user_message"],
        ]
        for each in found
    ]
    head = ("TIME", "LEVEL", "REQUEST", "RESOURCE", "MESSAGE")
    return Result(found, table(head, rows))


def _gib(size: int) -> float:
    return round(size / _GIB, 2)
