# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: an access whose opening or closing cannot read everything.

It is opened, and nothing can follow its row: the system refuses a thread (pids or
memory are used up), or the target has no connection_info. Or it is closed, and the row
of the volume's type is lost. Prints, for each case, what is open afterwards.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from cinder import exception

from lunshare.cinder import chap_secrets
from lunshare.cinder.host_connections import HostConnections
from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts
from lunshare.drivers.backend import Backend
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.driver import Driver
from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Mode, Volume

ID = "0a1b2c3d-0000-4000-8000-000000000001"
SENT = {"initiator": "iqn.1994-05.com.example:one", "host": "one", "mode": "rw"}


@dataclass
class CinderVolume:
    """What the driver reads of Cinder's volume."""

    id: str = ID
    name_id: str = ID
    size: int = 1
    status: str = "reserved"
    migration_status: str | None = None
    type_is_lost: bool = False

    @property
    def volume_type(self) -> None:
        """Cinder reads the type's row when it is first asked for."""
        if self.type_is_lost:
            raise exception.VolumeTypeNotFound(volume_type_id="lost")


@dataclass
class Rows:
    """Cinder's database: with an attachment that is reserved, or without one."""

    reserved: bool
    direct: dict[str, Mode] = field(default_factory=dict)
    auth: str = field(default_factory=chap_secrets.new_provider_auth)

    def of_volume(self, _volume: Any) -> VolumeHosts:
        rows = [AttachmentRow("a", "reserved", None, None)] if self.reserved else []
        return VolumeHosts(ID, self.auth, tuple(rows), dict(self.direct))

    def writers_policy(self, _volume: Any) -> None:
        """Every host may write."""

    def store_direct(self, _volume: Any, initiator: str, mode: Mode) -> None:
        self.direct[initiator] = mode

    def forget_direct(self, _volume: Any, initiators: list[str]) -> None:
        for each in initiators:
            self.direct.pop(each, None)


def defaults(driver: type[Driver]) -> dict[str, Any]:
    return {each.dest: each.default for each in driver.OPTIONS}


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def assembled(rows: Rows) -> tuple[HostConnections, FakeTarget]:
    """A backend on the fake drivers, with one volume."""
    fake_storage.reset()
    volumes = FakeVolumes("fake", defaults(FakeVolumes), NoRoot())
    target = FakeTarget("fake", defaults(FakeTarget), NoRoot())
    backend = Backend(volumes, target)
    backend.create(Volume(ID, 1024**3))
    return HostConnections(backend, rows), target  # type: ignore[arg-type]


def left_open(reserved: bool, broken: Any) -> dict[str, Any]:
    """What is open, and stored, after the answer was an error."""
    rows = Rows(reserved)
    connections, target = assembled(rows)
    try:
        with broken(target):
            connections.attach(CinderVolume(), dict(SENT))
        error = ""
    except Exception as raised:
        error = str(raised)
    return {
        "error": error,
        "open": initiators(target),
        "direct": list(rows.direct),
        "opening": len(connections._unfinished._opening),
    }


def detached_without_type(sent: dict[str, str] | None) -> dict[str, list[str]]:
    """What is open before and after a detach that cannot read the volume's type."""
    connections, target = assembled(Rows(reserved=False))
    connections.attach(CinderVolume(), dict(SENT))
    before = initiators(target)
    connections.detach(CinderVolume(type_is_lost=True), sent)
    return {"before": before, "after": initiators(target)}


def initiators(target: FakeTarget) -> list[str]:
    live = target.observe_volume(ID)
    return [connector.initiator for connector in live.connectors] if live else []


def no_thread(_target: FakeTarget) -> Any:
    return mock.patch.object(threading.Thread, "start", refuse)


def no_answer(target: FakeTarget) -> Any:
    failed = TargetFailed(ID, "no portal")
    return mock.patch.object(target, "connection_info", side_effect=failed)


def main() -> dict[str, Any]:
    return {
        "unfollowed": {
            f"{'attachment' if reserved else 'direct'}, {broken.__name__}": (
                left_open(reserved, broken)
            )
            for reserved in (True, False)
            for broken in (no_thread, no_answer)
        },
        "without type": {
            "the host": detached_without_type(SENT),
            "any host": detached_without_type(None),
        },
    }


if __name__ == "__main__":
    print(json.dumps(main()))
