# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes that many tests use in turn, and the types of the fixtures."""

from __future__ import annotations

from collections.abc import Callable

from tests.system.api import Api
from tests.system.daemons import Daemon
from tests.system.hosts import Host
from tests.system.kernel import Live

#: Argument: a name.
MakeHost = Callable[[str], Host]
#: Arguments: those of tests.system.daemons.Daemon, without the directory.
MakeDaemon = Callable[..., Daemon]
#: Argument: ``shared``, default True. Returns the id of a volume without hosts.
BorrowVolume = Callable[..., str]


class Volumes:
    """Volumes that tests use one after the other: creating one takes a second."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._free: dict[bool, list[str]] = {True: [], False: []}
        self._shared: dict[str, bool] = {}

    def borrow(self, shared: bool = True) -> str:
        """The id of a volume without hosts."""
        if self._free[shared]:
            return self._free[shared].pop()
        created = self._api.volume(shared)
        self._shared[created] = shared
        return created

    def release(self, volume: str) -> None:
        """Detach all its hosts; its export must be gone."""
        for attachment in self._api.attachments(volume):
            status, answer = self._api.detach(attachment["id"])
            assert status in (200, 404), answer
        assert Live(volume).gone
        self._free[self._shared[volume]].append(volume)

    def forget(self, volume: str) -> None:
        """Do not reuse it: the test has deleted it."""
        del self._shared[volume]

    def holds(self, volume: str) -> bool:
        return volume in self._shared

    def clear(self) -> None:
        """Delete all."""
        for volume in self._shared:
            self._api.delete_volume(volume)
