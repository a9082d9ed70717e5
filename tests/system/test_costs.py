# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of an attach: no process start, and no eventlet in the daemon."""

from __future__ import annotations

import pytest

from tests.system.api import Api
from tests.system.daemons import OwnHelper
from tests.system.processes import Forks, memory_holds
from tests.system.units import DAEMON, main_pid
from tests.system.volumes import MakeDaemon, MakeHost

pytestmark = pytest.mark.system


def test_attach_and_detach_start_no_process(
    own_helper: OwnHelper, daemon: MakeDaemon, host: MakeHost
) -> None:
    node = daemon(helper=own_helper.socket).start()
    assert node.process
    parents = node.process.pid, own_helper.process.pid
    api = node.api
    with Forks() as forks:
        volume = api.volume()
        assert len(forks.of(*parents)) >= 1  # lvcreate: so process starts are seen
        created = [
            api.attach(volume, host(f"host-{number}"), "ro" if number % 2 else "rw")
            for number in range(20)
        ]
        reserved = api.reserve(volume)
        assert api.connect(reserved, host("late"))[0] == 200
        for each in created:
            api.complete(each["id"])
            assert api.detach(each["id"])[0] == 200
        assert api.detach(reserved)[0] == 200
        assert forks.of(*parents) == []


def test_daemon_does_not_load_eventlet(api: Api) -> None:
    assert api.answers()
    # Every code object contains the path of its file.
    used, unused = b"-packages/sqlalchemy/", b"-packages/eventlet/"
    found = memory_holds(main_pid(DAEMON), used, unused)
    assert found == {used: True, unused: False}
