# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Additional daemons and helpers, each with the configuration that a test needs.

They are forked from the process of the tests, which has imported the code. A
start of the interpreter takes seconds on an emulated processor.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import logging
import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from lunshare.agent import main as agent_main
from lunshare.drivers import registry
from lunshare.helper import main as helper_main
from tests.stands.waiting import until
from tests.system import groups
from tests.system.api import Api
from tests.system.kernel import Live

FILTERS = "/etc/lunshare/rootwrap.d"
HELPER_SOCKET = "/run/lunshare/helper.sock"

_PR_SET_PDEATHSIG = 1  # prctl(2)

Main = Callable[[list[str]], int]
Options = Mapping[str, object]


class Forked:
    """``main(argv)`` in a separate process."""

    def __init__(self, main: Main, argv: list[str], log: Path) -> None:
        self.log = log
        log.touch()
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _live(main, argv, log)

    @property
    def alive(self) -> bool:
        """Whether it runs; sets ``code`` after its end."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal and wait for its end."""
        if self.alive:
            os.kill(self.pid, number)
            until(lambda: not self.alive)

    def ended(self, seconds: float = 45.0) -> int:
        """Wait until it ends by itself; returns its exit code."""
        until(lambda: not self.alive, seconds=seconds)
        assert self.code is not None
        return self.code

    def output(self) -> str:
        """All that it wrote to stdout and stderr."""
        return self.log.read_text()

    def stacks(self) -> str:
        """All that it wrote, and then what each of its threads does now."""
        before = len(self.output())
        os.kill(self.pid, signal.SIGUSR2)
        until(lambda: "most recent call first" in self.output()[before:])
        return self.output()


def _reached(section: Options) -> Options:
    """A section whose portals the hosts of tests reach: they are this guest itself."""
    if section.get("volume_driver") and section.get("target_driver", "lio") == "lio":
        return {"initiator_networks": "127.0.0.0/8", **section}
    return section


class Daemon:
    """A lunshared with its own state path, on the node's target.

    ``group`` is its volume group: a separate one, unless ``backend`` names one.
    """

    def __init__(
        self,
        directory: Path,
        node: Options | None = None,
        backend: Options | None = None,
        helper: str = HELPER_SOCKET,
        others: Mapping[str, Options] | None = None,
    ) -> None:
        """``others``: additional backends by name; ``node`` enables them."""
        directory.mkdir(exist_ok=True)
        self.directory, self.state = directory, directory / "state"
        self._socket = f"unix:{directory}/api"
        named = (backend or {}).get("volume_group")
        self._acquired = None if named else groups.acquire()
        self.group = str(named or self._acquired)
        self.api = Api(self._socket)
        chosen: dict[str, Options] = {
            "DEFAULT": {
                "enabled_backends": "lvm",
                "reconcile_interval": 3600,
                "backend_stats_polling_interval": 3600,
                "quota_volumes": -1,
                "quota_snapshots": -1,
                "quota_gigabytes": -1,
                **(node or {}),
            },
            "helper": {"socket": helper},
            "lvm": {
                "volume_driver": "lvm",
                "volume_group": self.group,
                **(backend or {}),
            },
            **(others or {}),
        }
        self.config = directory / "lunshare.conf"
        sections = (_section(name, _reached(each)) for name, each in chosen.items())
        self.config.write_text("".join(sections))
        self.process: Forked | None = None
        self._worked = False

    @property
    def argv(self) -> list[str]:
        """Its command line."""
        return [
            *("--config-file", str(self.config), "--state-path", str(self.state)),
            *("--listen", self._socket),
        ]

    def launch(self) -> Forked:
        """Start it and do not wait."""
        prepare()
        self.process = Forked(agent_main.main, self.argv, self.directory / "log")
        return self.process

    def start(self) -> Daemon:
        """Start it and wait until it answers."""
        process = self.launch()
        until(lambda: self.api.answers() or not process.alive)
        assert process.alive, process.output()
        self._worked = True
        return self

    def clear(self) -> None:
        """Delete all its volumes and attachments; starts it first if needed."""
        self._clear()
        if self._acquired:
            groups.release(self._acquired)
            self._acquired = None

    def _clear(self) -> None:
        if not self._worked:
            return
        if self.process is None or not self.process.alive:
            self.start()
        for volume in self.api.must("GET", "/v3/volumes?all_tenants=1")["volumes"]:
            for attachment in self.api.attachments(volume["id"]):
                status, answer = self.api.detach(attachment["id"])
                assert status == 200, answer
            self.api.delete_volume(volume["id"])
            assert Live(volume["id"]).gone
        # The next test with this volume group needs all of its space.
        until(lambda: not self.api.must("GET", "/v3/lunshare/wipes")["wipes"])
        assert self.process
        self.process.kill()


@functools.cache
def prepare() -> None:
    """Import once what each daemon would import at its start."""
    registry.volume_driver("lvm")
    registry.target_driver("lio")


class OwnHelper:
    """A root helper that a test may stop; no other process uses it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.socket = str(directory / "helper.sock")
        self._log = directory / "helper.log"
        self.start()

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        argv = ["--socket", self.socket, "--user", "root", "--filters", FILTERS]
        self.process = Forked(helper_main.main, argv, self._log)
        output = self.process.output
        until(lambda: "serving" in output() or not self.process.alive)
        assert self.process.alive, output()

    def stop(self) -> None:
        """Stop it; its socket refuses connections."""
        self.process.kill(signal.SIGTERM)


def _section(name: str, options: Options) -> str:
    lines = [f"{key} = {value}" for key, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _live(main: Main, argv: list[str], log: Path) -> None:
    """The child's main function, without anything of pytest."""
    code = 70
    try:
        # A failed test must leave no process: the lab waits for the last of them.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with open(log, "a", encoding="utf-8") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        faulthandler.register(signal.SIGUSR2)  # to the stderr of now: ``stacks``
        logging.root.handlers.clear()
        warnings.simplefilter("default")
        code = main(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def remove_disk(volume: str, group: str) -> None:
    """Remove a logical volume by hand, if it is there."""
    path = f"{group}/volume-{volume}"
    subprocess.run(["lvremove", "-qq", "--yes", path], check=False, capture_output=True)
