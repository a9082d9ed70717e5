# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder with the intervals that Cinder has by itself, and many fake nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bench import process_costs
from tests.fleet.stack import THIN, Stack
from tests.lab.steps import sh
from tests.stands.cinder_programs import SCHEDULER, command, python
from tests.stands.servers import ROOT, Server, children
from tests.stands.waiting import until

#: The pool of each fake node, also its backend (``fake_nodes``).
POOL = "many"
#: Cinder's own defaults; ``Stack`` has short ones.
_DEFAULTS = """\
[DEFAULT]
report_interval = 10
service_down_time = 60
periodic_interval = 60
periodic_fuzzy_delay = 60
backend_stats_polling_interval = 60
"""
#: MariaDB counts statements, and takes more clients than its default of 151.
_DATABASE = (
    *("--performance-schema=ON", "--max-connections=4000"),
    *("--max-digest-length=16384", "--performance-schema-max-digest-length=16384"),
)


class ScaleStack(Stack):
    """``Stack``, with what a measurement asks of its processes and its database."""

    def __init__(self, directory: Path, *database_options: str) -> None:
        # Not in /tmp, which may be small: MariaDB copies a million rows there.
        place = f"--tmpdir={directory}"
        super().__init__(directory, *_DATABASE, place, *database_options)
        self._second = Server("second-scheduler", directory)

    def configure(self, sections: str = "", *more: str) -> None:
        """Write cinder.conf with Cinder's own intervals."""
        super().configure(_DEFAULTS + sections, *more)

    def processes(self) -> dict[str, list[int]]:
        """The processes of each part."""
        found = {
            name: process_costs.tree(server.process.pid)
            for name, server in self.servers.items()
            if server.process
        }
        if self._second.process:
            found["cinder-scheduler"] += process_costs.tree(self._second.process.pid)
        assert self.database.process
        found["MariaDB"] = [self.database.process.pid]
        found["RabbitMQ"] = [int((self.directory / "pid").read_text())]
        return found

    def cpu(self) -> dict[str, float]:
        """Seconds of processor time of each part so far."""
        found = self.processes()
        return {name: process_costs.cpu(each) for name, each in found.items()}

    def worker(self) -> int:
        """The process of cinder-volume for THIN, its first; 0 if there is none."""
        server = self.servers["cinder-volume"]
        assert server.process
        return min(children(server.process.pid), default=0)

    def sql(self, text: str) -> list[list[str]]:
        """Run SQL; the rows of its answer."""
        words = ["mariadb", "--no-defaults", f"--socket={self.database.socket}"]
        answer = sh([*words, "--user=root", "-N", "-B", "-e", text, "cinder"])
        return [line.split("\t") for line in answer.splitlines()]

    def status(self, name: str) -> int:
        """One of MariaDB's counters."""
        return int(self.sql(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])

    def scheduler_words(self) -> list[str]:
        """The command of cinder-scheduler."""
        return command(SCHEDULER, self.config)

    def start_second_scheduler(self) -> None:
        """Start another cinder-scheduler; it ends with the others."""
        config = self.directory / "second.conf"
        text = self.config.read_text().replace("host = node\n", "host = second\n", 1)
        config.write_text(text)
        self._stack.callback(self._second.end)
        self._second.run(command(SCHEDULER, config))
        until(lambda: self._schedulers_up() == 2, "the second scheduler is up")

    def _schedulers_up(self) -> int:
        where = "topic = 'cinder-scheduler' AND report_count > 0"
        return int(self.sql(f"SELECT COUNT(*) FROM services WHERE {where}")[0][0])


def pool_report(stack: Stack) -> dict[str, Any]:
    """The stats of a pool of lunshare's driver, without the scheduler's additions."""
    found = dict(stack.pools()[f"node@{THIN}#{THIN}"])
    return {**found, "timestamp": None, "storage_protocol": "iSCSI"}


class Nodes:
    """The process of ``tests.bench.fake_nodes``, and its verbs."""

    def __init__(self, config: Path, log: Path) -> None:
        words = [str(python()), "-W", "ignore", "-m", "tests.bench.fake_nodes"]
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [*words, "--config-file", str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            text=True,
            env={"PYTHONPATH": str(ROOT), "OS_CINDER_DISABLE_EVENTLET_PATCHING": "1"},
        )

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Call a verb of ``FakeNodes``."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the fake nodes ended: see {self._log.name}"
        return json.loads(line)

    def done(self, ids: set[str], seconds: float) -> dict[str, Mapping[str, Any]]:
        """Wait until these volumes are created; the moments of each."""
        found: dict[str, Mapping[str, Any]] = {}

        def all_done() -> bool:
            found.update(self.ask("creates"))
            return ids <= set(found)

        with suppress(AssertionError):
            until(all_done, "created", seconds)
        return {key: value for key, value in found.items() if key in ids}

    def close(self) -> None:
        """Let it remove the nodes and end."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(120)
        self.process.stdout.close()
        self._log.close()
