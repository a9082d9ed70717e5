# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes that many tests use in turn, and the types of what fixtures make."""

from __future__ import annotations

from collections.abc import Callable

from tests.system.api import Api
from tests.system.daemons import Daemon
from tests.system.hosts import Host
from tests.system.kernel import Live

#: Takes a name.
MakeHost = Callable[[str], Host]
#: Takes what tests.system.daemons.Daemon does, but for its directory.
MakeDaemon = Callable[..., Daemon]
#: Takes ``shared``, true unless told; the id of a volume that nobody has.
Take = Callable[..., str]


class Volumes:
    """Volumes that tests use one after the other: making one takes a second."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._free: dict[bool, list[str]] = {True: [], False: []}
        self._shared: dict[str, bool] = {}

    def take(self, shared: bool = True) -> str:
        """One that nobody has."""
        if self._free[shared]:
            return self._free[shared].pop()
        made = self._api.volume(shared)
        self._shared[made] = shared
        return made

    def give_back(self, volume: str) -> None:
        """Take it from all hosts; nothing of it stays in the kernel."""
        for attachment in self._api.attachments(volume):
            status, answer = self._api.detach(attachment["id"])
            assert status in (200, 404), answer
        assert Live(volume).gone
        self._free[self._shared[volume]].append(volume)

    def forget(self, volume: str) -> None:
        """The test has deleted it."""
        del self._shared[volume]

    def holds(self, volume: str) -> bool:
        return volume in self._shared

    def clear(self) -> None:
        """Delete all."""
        for volume in self._shared:
            self._api.delete_volume(volume)
