# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Create what must survive an outage, note it, and leave a client running.

``python -m tests.system.prepare_outage``. The client attaches and detaches until the
machine stops, and logs each answer before its next request.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stands.waiting import until
from tests.system import after_outage
from tests.system.api import Api
from tests.system.hosts import Host, block

_LINES = 12  # the least that the client has logged when the machine stops


def main() -> int:
    """Prepare; return when the client runs."""
    api = Api()
    until(api.answers)
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
        "boot": after_outage.boot(),
        "volumes": [shared, plain, busy, keyed["volume"]],
        "attached": attached,
        "reserved": api.reserve(shared, "ro"),
        "detached": gone,
        "busy": busy,
        "keyed": keyed,
    }
    after_outage.write_durably(after_outage.NOTE, json.dumps(note))
    after_outage.write_durably(after_outage.LOG, "")
    in_background(lambda: _work(api, busy))
    until(lambda: after_outage.LOG.read_text().count("\n") >= _LINES)
    print(f"left {len(attached)} attachments and a running client")
    return 0


def _clear(api: Api) -> None:
    """Delete what an earlier call has created."""
    for volume in api.must("GET", "/v3/volumes")["volumes"]:
        for attachment in api.attachments(volume["id"]):
            assert api.detach(attachment["id"], force=True)[0] == 200
        api.delete_volume(volume["id"])


def _keyed(api: Api) -> dict[str, Any]:
    """A reservation that survives a power loss, and the key of a detached host."""
    volume = api.volume(volume_type=api.cluster_type())
    created = {name: api.attach(volume, Host(name)) for name in after_outage.KEYED}
    for name, each in created.items():
        host = Host(name)
        session = host.login(each["connection_info"])
        api.complete(each["id"])
        if name != after_outage.OUTSIDER:
            after_outage.register(session, after_outage.key(name))
        if name == after_outage.HOLDER:
            after_outage.reserve(session, after_outage.key(name))
        host.leave()
    assert api.detach(created[after_outage.QUITTER]["id"], force=True)[0] == 200
    return {"volume": volume, "info": created[after_outage.OUTSIDER]["connection_info"]}


def _attached(api: Api, volume: str, name: str, mode: str) -> dict[str, Any]:
    host = Host(name)
    created = api.attach(volume, host, mode)
    api.complete(created["id"])
    info = api.must("GET", f"/v3/attachments/{created['id']}")["attachment"]
    session = host.login(info["connection_info"])
    if mode == "rw":
        session.write(0, block(after_outage.DATA))
        session.command(bytes([0x35, *bytes(9)]))  # SYNCHRONIZE CACHE(10)
    serial = session.serial
    host.leave()
    return {
        "id": created["id"],
        "host": name,
        "mode": mode,
        "serial": serial,
        "info": info["connection_info"],
    }


def _work(api: Api, volume: str) -> None:
    """Attach and detach, one host after the other, until something fails."""
    hosts = [Host(f"left-busy-{number}") for number in range(3)]
    held: dict[str, str] = {}
    with open(after_outage.LOG, "a", encoding="ascii") as log:

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


def in_background(work: Callable[[], None], log: Path = Path(os.devnull)) -> None:
    """Run it in a detached process, whose output goes to ``log``."""
    if os.fork():
        return
    os.setsid()
    nowhere = os.open(log, os.O_RDWR | os.O_CREAT)
    for number in range(3):
        os.dup2(nowhere, number)
    try:
        work()
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
