# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What both contracts of ``lunshare.drivers.base`` have: a driver, its root helper."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from oslo_config import cfg


class Root(Protocol):
    """The root helper as a driver sees it; see ``lunshare.drivers.helper_client``."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """Run a command as root, if a filter in rootwrap.d allows it; return stdout.

        :raises NoSpace: LVM found no space for what it should have created.
        :raises CommandFailed: its exit code was not 0 for another reason.
        :raises HelperRefused: no filter in rootwrap.d allows it.
        :raises HelperUnreachable: the helper does not answer.
        :raises DeadlineExceeded: it did not finish within ``timeout`` seconds.
        """

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Call a typed verb of the root helper; raises as ``run`` does.

        A verb that copies or wipes bytes may take any time. Its ``timeout`` is the
        longest time without progress.

        :raises Stalled: no byte was processed for ``timeout`` seconds.
        """


def require_abilities(driver: Any, kind: type) -> None:
    """:raises TypeError: the class has abilities of another kind."""
    if not isinstance(driver.ABILITIES, kind):
        raise TypeError(f"ABILITIES of {driver.__name__} must be {kind.__name__}(...)")


class Driver(abc.ABC):
    """What both kinds of drivers have."""

    #: The contract that the driver was written for. A driver that does not set it
    #: was written for the first.
    CONTRACT: ClassVar[int] = 1

    #: The options of a backend section that this driver reads.
    OPTIONS: ClassVar[list[cfg.Opt]] = []

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        """Store the arguments; do no I/O. ``name`` is the backend's section."""
        self.name, self.options, self.root = name, options, root

    def claim(self) -> None:  # noqa: B027 - most drivers need none
        """Reserve what only one control plane may use, as ``check`` does too.

        A caller that forks a process for each backend calls this before the forks, so
        all its processes share the claim. It raises no error; ``check`` does.
        """

    @abc.abstractmethod
    def check(self) -> None:
        """Verify that this driver can work. After a boot, activate what it needs.

        :raises Misconfigured: names what is wrong and what to do about it.
        """

    def follow_storage(self, changed: Callable[[], object]) -> None:  # noqa: B027
        """From now on call ``changed`` in a thread of the driver when storage changes.

        A part of it may be lost, or back; the caller then checks. Most drivers cannot
        tell, and are checked on a timer.
        """

    def lost(self, volume_id: str) -> str:
        """Return why the volume's disk cannot be used; empty if it can be, or is gone.

        For a volume driver whose ``check`` succeeds while a part of its pool is lost:
        the disk is on that part, or may be. ``capacity`` is closed then, and verbs that
        need that part raise a DriverError: StorageLost where it is unknown whether the
        disk exists. Until that part is back, the caller starts no work on the volume by
        itself. Does no I/O.
        """
        return ""
