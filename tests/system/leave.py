# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Make what must survive, note it, and leave a client at work.

``python -m tests.system.leave``. The client attaches and detaches until the
machine goes down under it, and logs each answer before it asks the next thing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.system import left
from tests.system.api import Api
from tests.system.hosts import Host, block
from tests.system.waiting import wait_until

_LINES = 12  # what the client has done at least when the machine goes down


def main() -> int:
    """Prepare; return when the client is at work."""
    api = Api()
    wait_until(api.answers)
    _clear(api)
    shared, plain, busy = api.volume(), api.volume(shared=False), api.volume()
    attached = [
        _attached(api, shared, "left-writer", "rw"),
        _attached(api, shared, "left-reader", "ro"),
        _attached(api, plain, "left-alone", "rw"),
    ]
    keyed = _keyed(api)
    gone = api.attach(shared, Host("left-gone"))["id"]
    assert api.detach(gone)[0] == 200
    note = {
        "boot": left.boot(),
        "volumes": [shared, plain, busy, keyed["volume"]],
        "attached": attached,
        "reserved": api.reserve(shared, "ro"),
        "detached": gone,
        "busy": busy,
        "keyed": keyed,
    }
    left.written(left.NOTE, json.dumps(note))
    left.written(left.LOG, "")
    _behind(lambda: _work(api, busy))
    wait_until(lambda: left.LOG.read_text().count("\n") >= _LINES)
    print(f"left {len(attached)} attachments and a client at work")
    return 0


def _clear(api: Api) -> None:
    """Take away what an earlier call has left."""
    for volume in api.must("GET", "/v3/volumes")["volumes"]:
        for attachment in api.attachments(volume["id"]):
            assert api.detach(attachment["id"])[0] == 200
        api.delete_volume(volume["id"])


def _keyed(api: Api) -> dict[str, Any]:
    """A reservation that outlives the power, and the key of a host that has left."""
    volume = api.volume()
    made = {name: api.attach(volume, Host(name)) for name in left.KEYED}
    for name, each in made.items():
        host = Host(name)
        session = host.login(each["connection_info"])
        api.complete(each["id"])
        if name != left.OUTSIDER:
            left.register(session, left.key(name))
        if name == left.HOLDER:
            left.reserve(session, left.key(name))
        host.leave()
    assert api.detach(made[left.QUITTER]["id"])[0] == 200
    return {"volume": volume, "info": made[left.OUTSIDER]["connection_info"]}


def _attached(api: Api, volume: str, name: str, mode: str) -> dict[str, Any]:
    host = Host(name)
    made = api.attach(volume, host, mode)
    api.complete(made["id"])
    info = api.must("GET", f"/v3/attachments/{made['id']}")["attachment"]
    session = host.login(info["connection_info"])
    if mode == "rw":
        session.write(0, block(left.DATA))
        session.command(bytes([0x35, *bytes(9)]))  # SYNCHRONIZE CACHE(10)
    serial = session.serial
    host.leave()
    return {
        "id": made["id"],
        "host": name,
        "mode": mode,
        "serial": serial,
        "info": info["connection_info"],
    }


def _work(api: Api, volume: str) -> None:
    """Attach and detach, one host after the other, until something fails."""
    hosts = [Host(f"left-busy-{number}") for number in range(3)]
    held: dict[str, str] = {}
    with open(left.LOG, "a", encoding="ascii") as log:

        def note(host: Host, what: str) -> None:
            log.write(f"{host.name} {what}\n")
            log.flush()
            os.fsync(log.fileno())

        while True:
            for host in hosts:
                note(host, "?")
                if host.name in held:
                    assert api.detach(held.pop(host.name))[0] == 200
                else:
                    held[host.name] = str(api.attach(volume, host)["id"])
                note(host, held.get(host.name, ""))


def _behind(work: Callable[[], None]) -> None:
    """Run it in a process that nobody waits for."""
    if os.fork():
        return
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    try:
        work()
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
