# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One function for each command: ask the node, and say it as tables.

Each gives the node's own answer, for ``--json``, the text, and the exit code.
"""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from lunshare.agent.cli.client import Node, Refused
from lunshare.agent.cli.table import table

_GIB = 1024**3

DONE, REFUSED, USAGE, UNREACHABLE, NO_BACKEND, DISAGREEMENT = 0, 1, 2, 3, 4, 5

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_VERDICT = {True: "passes", False: "FAILS"}
_NUMBER = ("name", "value", "multiplier", "weight")


class Told(NamedTuple):
    """What a command has to say."""

    answer: Any
    text: str
    code: int = DONE


def pools(node: Node, asked: Namespace) -> Told:
    """Every backend's pool: its room, what it can do, and what is wrong with it."""
    found = node.get("/scheduler-stats/get_pools?detail=true")["pools"]
    head = ("POOL", "STATE", "TOTAL", "FREE", "PROMISED", "VOLUMES", "WIPING")
    rows = [_pool(pool["name"], pool["capabilities"]) for pool in found]
    return Told(found, table((*head, "PROTOCOL", "SHARED", "WHY"), rows))


def _pool(name: str, caps: dict[str, Any]) -> list[Any]:
    shut = caps["backend_state"] == "up" and caps.get("state_reason")
    return [
        name,
        "closed" if shut else caps["backend_state"],
        caps["total_capacity_gb"],
        caps["free_capacity_gb"],
        caps["provisioned_capacity_gb"],
        caps["total_volumes"],
        caps.get("wipes_left_gb"),
        caps["storage_protocol"],
        caps["multiattach"],
        caps.get("state_reason"),
    ]


def explain(node: Node, asked: Namespace) -> Told:
    """Where a volume of this size and type would go, and why not elsewhere."""
    volume = {"size": asked.size, "volume_type": asked.type}
    volume["availability_zone"] = asked.zone
    found = node.post("/scheduler-stats/explain", {"volume": volume})["explanation"]
    verdicts = [
        [pool["name"], each["name"], _VERDICT[each["passed"]], each["reason"]]
        for pool in found["pools"]
        for each in pool["filters"]
    ]
    numbers = [
        [pool["name"], *(each[key] for key in _NUMBER)]
        for pool in found["pools"]
        for each in pool["weighers"]
    ]
    said = [f"chosen: {found['chosen'] or 'none'}", ""]
    said += [table(("POOL", "FILTER", "VERDICT", "REASON"), verdicts)]
    if numbers:
        head = ("POOL", "WEIGHER", "VALUE", "MULTIPLIER", "WEIGHT")
        said += ["", table(head, numbers)]
    return Told(found, "\n".join(said), DONE if found["chosen"] else NO_BACKEND)


def hosts(node: Node, asked: Namespace) -> Told:
    """Which host has which volume, in which mode, with which live session."""
    which = {"volume_id": _volume(node, asked.volume)} if asked.volume else {}
    query = urlencode(which)
    found = node.get(f"/lunshare/hosts?{query}")["hosts"]
    rows = [_host(each) for each in found]
    head = ("VOLUME", "HOST", "INITIATOR", "MODE", "STATUS", "SESSIONS", "ADDRESS")
    text = table((*head, "KERNEL", "PROBLEM"), rows)
    wrong = any(each["problem"] for each in found)
    return Told(found, text, DISAGREEMENT if wrong else DONE)


def _volume(node: Node, name: str) -> str:
    """The id of a volume that is given by its id or its name."""
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


def orphans(node: Node, asked: Namespace) -> Told:
    """Exports, disks and snapshots that carry our names and have no row."""
    found = node.get("/lunshare/orphans")["orphans"]
    rows = [[each[key] for key in ("kind", "id", "backend", "where")] for each in found]
    return Told(found, table(("KIND", "ID", "BACKEND", "WHERE"), rows))


def recover(node: Node, asked: Namespace) -> Told:
    """Give an orphaned disk its row again: an available volume of the same id."""
    body = {"id": asked.volume, "name": asked.name, "volume_type": asked.type}
    made = node.post("/lunshare/orphans", {"volume": body})["volume"]
    return Told(made, f"volume {made['id']} of {made['size']} GiB is recovered")


def delete_orphan(node: Node, asked: Namespace) -> Told:
    """Delete one orphan. Without --yes it only says what would be deleted."""
    for each in node.get("/lunshare/orphans")["orphans"]:
        if (each["kind"], each["id"]) == (asked.kind, asked.id):
            break
    else:
        raise Refused(
            f"there is no orphaned {asked.kind} {asked.id}: see lunshare orphans"
        )
    if not asked.yes:
        text = f"would delete: {each['where']}\nnothing is deleted without --yes"
        return Told(each, text)
    node.delete(f"/lunshare/orphans/{asked.kind}/{asked.id}")
    return Told(each, f"deleted: {each['where']}")


def wipes(node: Node, asked: Namespace) -> Told:
    """Deleted disks whose bytes are still being wiped; sizes in GiB."""
    found = node.get("/lunshare/wipes")["wipes"]
    rows = [
        [each["name"], each["backend"], _gib(each["size"]), _gib(each["left"])]
        for each in found
    ]
    return Told(found, table(("NAME", "BACKEND", "SIZE", "LEFT"), rows))


def messages(node: Node, asked: Namespace) -> Told:
    """Why volumes could not be made, in every project; the newest first."""
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
    return Told(found, table(head, rows))


def _gib(size: int) -> float:
    return round(size / _GIB, 2)
