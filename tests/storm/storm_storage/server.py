# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The storage's process: disks, exports, and the hosts that are logged in.

    python -m storm_storage.server SOCKET SEED DELAY

It ends when its standard input does, so it never outlives who started it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener
from typing import Any

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance.interruption import Killed
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from storm_storage.faults import Faults
from storm_storage.machine import Machine
from storm_storage.overlaps import Overlaps
from storm_storage.storage_client import parts

_CLASSES: dict[str, type[FakeVolumes] | type[FakeTarget]] = {
    "volumes": FakeVolumes,
    "target": FakeTarget,
}
#: How likely a verb ends at its next point if its caller has died.
_DIES = 0.5


class Server:
    """Each connection has a thread; each driver of the daemon has a driver here."""

    def __init__(self, seed: int, delay: float) -> None:
        self.faults = Faults(seed, delay)
        self.overlaps = Overlaps()
        self.machine = Machine(self.faults, self.overlaps)
        self._drivers: dict[object, VolumeDriver | TargetDriver] = {}
        self._mutex, self._caller = threading.Lock(), threading.local()

    def serve(self, path: str) -> None:
        """Answer every connection; never returns."""
        with Listener(path, "AF_UNIX", backlog=128) as listener:
            while True:
                connection = listener.accept()
                threading.Thread(
                    target=self._answer, args=(connection,), daemon=True
                ).start()

    def _answer(self, connection: Connection) -> None:
        self._caller.connection = connection
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                connection.send(self._done(*connection.recv()))

    def _done(
        self,
        role: str,
        key: Any,
        verb: str,
        given: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[bool, Any]:
        answer: tuple[bool, Any]
        # A verb whose caller has died continues, as in a helper, or ends too.
        self._caller.mortal = self.faults.chance() < _DIES
        try:
            if role == "machine":
                return True, getattr(self.machine, verb)(*given, **named)
            answer = True, self._worked(role, key, verb, given, named)
        except BaseException as error:
            answer = False, parts(error)
        self.faults.pause(verb)
        return answer

    def _worked(
        self, role: str, key: Any, verb: str, given: Any, named: dict[str, Any]
    ) -> Any:
        """A verb of a driver."""
        method, caller = getattr(self._driver(role, key), verb), self._caller.connection
        with self.overlaps.working(key[0], verb, given, lambda: not _ended(caller)):
            return method(*given, **named)

    def _driver(self, role: str, key: Any) -> VolumeDriver | TargetDriver:
        with self._mutex:
            if key not in self._drivers:
                _, name, options = key
                made = _CLASSES[role](name, dict(options), NoRoot())
                made.failures.watch(self._watcher(name, key[0]))
                self._drivers[key] = made
            return self._drivers[key]

    def _watcher(self, backend: str, ident: str) -> Callable[[str], None]:
        def passed(point: str) -> None:
            self.machine.count(ident, point)
            if self._caller.mortal and _ended(self._caller.connection):
                raise Killed(point)
            self.faults.at(backend, point)

        return passed


def _ended(connection: Connection) -> bool:
    """Whether the caller has gone: before its answer there is nothing else to read."""
    try:
        return connection.poll(0)
    except OSError:
        return True


def main(argv: list[str]) -> int:
    """Serve until the standard input ends."""
    path, seed, delay = argv
    server = Server(int(seed), float(delay))
    threading.Thread(target=server.serve, args=(path,), daemon=True).start()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
