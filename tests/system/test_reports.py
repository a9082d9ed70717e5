# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The installed daemon with reports to a scheduler, under its own unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.api import Api
from tests.system.processes import memory_holds
from tests.system.units import DAEMON, Journal, main_pid, run, systemctl
from tests.system.waiting import wait_until

pytestmark = pytest.mark.system

# Read after lunshare.conf; so the unit's limits are tested too.
_DROP_IN = Path(f"/run/systemd/system/{DAEMON}.d/reports.conf")
_CONFIG = Path("/run/lunshare-reports.conf")
_EVENTLET, _OURS = b"-packages/eventlet/", b"-packages/sqlalchemy/"


@pytest.fixture
def bus_log() -> Iterator[Journal]:
    """The log of the daemon after a restart with the URL of a missing message bus."""
    url = "rabbit://guest:guest@127.0.0.1:9/"
    _CONFIG.write_text(f"[scheduler]\ntransport_url = {url}\nreport_interval = 1\n")
    _DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    start = re.search(r"^ExecStart=(.+)$", systemctl("cat", DAEMON), re.M)
    assert start
    words = f"{start[1]} --config-file {_CONFIG}"
    _DROP_IN.write_text(f"[Service]\nExecStart=\nExecStart={words}\n")
    journal = Journal()
    systemctl("daemon-reload")
    systemctl("restart", DAEMON)
    yield journal
    _DROP_IN.unlink()
    _CONFIG.unlink()
    systemctl("daemon-reload")
    systemctl("restart", DAEMON)


def test_unit_allows_the_child_that_sends_reports(api: Api, bus_log: Journal) -> None:
    wait_until(lambda: bus_log.has_line("[reports] LOST the message bus"), seconds=120)
    assert api.answers()
    found = re.search(r"\[reports\] STARTED pid=(\d+)", bus_log.text())
    assert found
    daemon, child = main_pid(DAEMON), int(found[1])
    assert run("ps", "-o", "ppid=,user=", "-p", str(child)).split() == [
        str(daemon),
        "lunshare",
    ]
    assert memory_holds(child, _EVENTLET) == {_EVENTLET: True}
    assert memory_holds(daemon, _OURS, _EVENTLET) == {_OURS: True, _EVENTLET: False}
    assert not bus_log.has_line("[reports] ENDED")
    run("kill", "-9", str(child))
    wait_until(lambda: len(re.findall("STARTED pid=", bus_log.text())) == 2, seconds=60)
    assert api.answers()
