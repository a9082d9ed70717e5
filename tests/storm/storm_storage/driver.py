# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The drivers that a daemon loads: every verb is done in the storage's process."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from storm_storage.storage_client import StorageClient

if TYPE_CHECKING:  # a tree before these were there can be stormed too
    from lunshare.drivers.abilities import VolumeAbilities

SOCKET = cfg.StrOpt("storm_socket", help="Where the storage's process listens.")
PATIENCE = cfg.FloatOpt(
    "storm_patience",
    default=60.0,
    help="Seconds after which a call to the storage fails with DeadlineExceeded.",
)
CLOSED = cfg.BoolOpt(
    "storm_extends_open",
    default=True,
    help="Whether a volume that hosts have can grow.",
)


def _remote(verb: str) -> Callable[..., Any]:
    def call(self: Any, *given: object, **named: object) -> Any:
        return self.storage_client.call(self.ROLE, self.key, verb, *given, **named)

    call.__name__ = verb
    return call


def _verbs(contract: type, *local: str) -> dict[str, Callable[..., Any]]:
    """A method for each verb of the contract, done by the storage's process."""
    return {
        name: _remote(name)
        for name, _ in inspect.getmembers(contract, inspect.isfunction)
        if not name.startswith("_") and name not in local
    }


def _key(name: str, options: Mapping[str, Any], known: list[cfg.Opt]) -> object:
    """What the storage's process creates its driver from."""
    kept = {option.dest: options[option.dest] for option in known}
    return str(uuid.uuid4()), name, tuple(sorted(kept.items()))


class StormVolumes(FakeVolumes):
    """``FakeVolumes`` in the storage's process, which reports no events of disks."""

    ROLE = "volumes"
    OPTIONS: ClassVar[list[cfg.Opt]] = [*FakeVolumes.OPTIONS, SOCKET, PATIENCE, CLOSED]

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        VolumeDriver.__init__(self, name, options, root)
        self.storage_client = StorageClient(
            options["storm_socket"], options["storm_patience"]
        )
        self.key = _key(name, options, FakeVolumes.OPTIONS)

    @property
    def abilities(self) -> VolumeAbilities:
        # A snapshot in the storage's process never loses its bytes.
        can = replace(super().abilities, loses_snapshots=False)
        return replace(can, extends_open=self.extends_open)

    @property
    def extends_open(self) -> bool:
        """As a tree asks for it that knows no ``abilities`` yet."""
        return bool(self.options["storm_extends_open"])


class StormTarget(FakeTarget):
    """``FakeTarget`` in the storage's process; what needs no storage stays here."""

    ROLE = "target"
    OPTIONS: ClassVar[list[cfg.Opt]] = [*FakeTarget.OPTIONS, SOCKET, PATIENCE]

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self.storage_client = StorageClient(
            options["storm_socket"], options["storm_patience"]
        )
        self.key = _key(name, options, FakeTarget.OPTIONS)


for _name, _verb in _verbs(VolumeDriver, "follow_storage").items():
    setattr(StormVolumes, _name, _verb)
for _name, _verb in _verbs(TargetDriver, "connection_info", "connection").items():
    setattr(StormTarget, _name, _verb)
