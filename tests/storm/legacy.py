# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What clients do that use the actions of a volume instead of attachments.

No action names an attachment, so two clients of one volume can end each other's. Every
client has one volume of its own, where each step is checked, and shares others with
the clients of its project, where only the answers and the end are.
"""

from __future__ import annotations

from typing import Any

from tests.storm.client import Client
from tests.storm.hosts import Attached, connector, log_in

_POOL = 2
#: os-begin_detaching before each end; each may be left out.
_ENDS = (
    ("begin", "terminate", "detach"),
    ("begin", "detach"),
    ("terminate", "detach"),
    ("begin", "roll", "begin", "terminate", "detach"),
    ("begin", "roll", "terminate", "detach"),
    ("detach",),
)
_ACTIONS: dict[str, str] = {
    "reserve": "os-reserve",
    "unreserve": "os-unreserve",
    "initialize": "os-initialize_connection",
    "attach": "os-attach",
    "begin": "os-begin_detaching",
    "roll": "os-roll_detaching",
    "terminate": "os-terminate_connection",
    "detach": "os-detach",
}


def use_own_volume(client: Client) -> None:
    """Attach and detach the client's own volume, and check each step."""
    starts = client.world.starts
    if client.own is None:
        client.own = _created(client, "single")
        return
    shown = client.volume(client.own)
    if shown is None or shown["status"] != "available" or shown["attachments"]:
        return _clean(client, client.own)
    done = _attach_and_detach(client, client.own)
    shown = client.volume(client.own) if done else None
    if shown and client.world.starts == starts and client.world.calm:
        _check_empty(client, shown)
    return None


def use_shared_volume(client: Client) -> None:
    """One step, or all of them, on a volume that others use in the same way."""
    pool = client.world.legacy
    if len(pool) < _POOL:
        made = _created(client, client.rng.choice(["shared", "single"]))
        pool.extend([made] if made else [])
        return
    volume_id = client.rng.choice(pool)
    if client.rng.random() < 0.5:
        _attach_and_detach(client, volume_id, checked=False)
        return
    _step(client, volume_id, client.rng.choice(list(_ACTIONS)))


def _created(client: Client, kind: str) -> str | None:
    """Create a volume that only these actions use; None if that was not answered."""
    name = client.uuid()
    op = client.begin("create", name=name)
    asked = {"size": 1, "name": name, "volume_type": kind, "description": ""}
    answer = client.post(op, "volumes", {"volume": asked})
    if not answer.good:
        return None
    ident: str = answer.body["volume"]["id"]
    client.journal.about(op, ident)
    op.given["id"] = ident
    client.watch(op, ident)
    return ident


def _attach_and_detach(client: Client, volume_id: str, checked: bool = True) -> bool:
    """Return whether every step was accepted."""
    mode = client.rng.choice(["rw", "ro"])
    reserved = client.rng.random() < 0.7
    row = None
    for step in ("reserve", "initialize", "attach") if reserved else ("initialize",):
        answer = _step(client, volume_id, step, mode)
        if answer is None:
            return False
        if step == "initialize" and checked:
            info = answer["connection_info"]["data"]
            row = Attached("", volume_id, _initiator(client), mode, info, None)
            log_in(client, row)
    if not reserved:
        ends: tuple[str, ...] = ("terminate",)
    elif client.rng.random() < 0.1:
        ends = ("terminate", "detach")
    else:
        ends = client.rng.choice(_ENDS)
    done = True
    for step in ends:
        done = _step(client, volume_id, step, mode) is not None and done
    if done and row is not None and row.session is not None:
        _check_out(client, row)
    return done


def _step(
    client: Client, volume_id: str, step: str, mode: str = "rw"
) -> dict[str, Any] | None:
    """Ask for one action; return its body, None unless it was accepted."""
    action, initiator = _ACTIONS[step], _initiator(client)
    asked: dict[str, Any] | None = None
    if step in ("initialize", "terminate"):
        asked = {"connector": connector(initiator)}
    elif step == "attach":
        asked = {"mountpoint": "/dev/vdb", "host_name": connector(initiator)["host"]}
        asked["mode"] = mode
    elif step == "detach":
        asked = {}
    op = client.begin(action, volume_id, initiator=initiator, mode=mode)
    answer = client.act(op, volume_id, action, asked)
    return (answer.body or {}) if answer.good else None


def _initiator(client: Client) -> str:
    return f"iqn.2020-01.org.storm:l{client.number}"


def _clean(client: Client, volume_id: str) -> None:
    """End what an action without an answer has left, or give the volume up."""
    shown = client.volume(volume_id)
    if shown is None or "error" in shown["status"]:
        # None too where the daemon was killed, so a host may still have it.
        client.given_up.append(volume_id)
        client.own = None
        return
    for step in ("terminate", "unreserve"):
        _step(client, volume_id, step)
    end_all(client, volume_id)


def end_all(client: Client, volume_id: str) -> None:
    """Detach every host of a volume by the id of its attachment."""
    answer = client.get(f"attachments?volume_id={volume_id}&all_tenants=1")
    for row in answer.body["attachments"] if answer.status == 200 else []:
        op = client.begin("os-detach", volume_id, attachment=row["id"])
        asked = {"attachment_id": row["id"]}
        client.act(op, volume_id, "os-detach", asked)


def _check_empty(client: Client, shown: dict[str, Any]) -> None:
    if shown["status"] != "available" or shown["attachments"]:
        sentence = f"{shown['id']} is {shown['status']} after its host was detached"
        client.journal.find("the legacy actions leave nothing", sentence, shown["id"])


def _check_out(client: Client, row: Attached) -> None:
    if client.storage_client.call("machine", None, "session", row.session, "alive"):
        sentence = f"its host {row.initiator} is detached, and its session continues"
        client.journal.find("a detached host is out", sentence, row.volume_id)


def detach_hosts(client: Client, volume_ids: list[str]) -> None:
    """End what is left on these volumes, when nobody works on them any more."""
    for volume_id in volume_ids:
        op = client.begin("os-unreserve", volume_id)
        client.act(op, volume_id, "os-unreserve", None)
        end_all(client, volume_id)
