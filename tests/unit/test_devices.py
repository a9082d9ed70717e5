# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Reading device nodes; tests that need real devices are in tests/system."""

import os
import subprocess
import sys

import pytest

from lunshare.drivers import devices
from lunshare.drivers.errors import DeadlineExceeded


def test_existing_path_is_not_waited_for(tmp_path):
    devices.wait_for_path(str(tmp_path), 0)


def test_wait_for_path_ends_at_the_deadline(tmp_path):
    with pytest.raises(DeadlineExceeded, match="appearance of"):
        devices.wait_for_path(str(tmp_path / "never"), 0.05)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/never-there"])
def test_path_that_is_not_a_block_device_has_no_size(path):
    with pytest.raises(FileNotFoundError):
        devices.block_size(path)


# As cinder-volume does: eventlet removes select.poll, without which pyudev cannot wait.
_IN_CINDER = """
import eventlet
eventlet.monkey_patch()
import threading, time
from lunshare.drivers import devices
from lunshare.drivers.errors import DeadlineExceeded
ticks = []
def tick():
    while len(ticks) < 9:
        time.sleep(0.01)
        ticks.append(1)
threading.Thread(target=tick).start()
try:
    devices.wait_for_path("/dev/never-there", 0.5)
except DeadlineExceeded:
    print(len(ticks))
with devices.BlockEvents() as events:
    print(events._received())
"""


def test_events_are_waited_for_beside_other_threads_of_a_cinder_with_eventlet():
    program = [sys.executable, "-W", "ignore", "-c", _IN_CINDER]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["9", "None"]


def test_mtime_of_a_directory_shows_changes(tmp_path):
    path = str(tmp_path / "group")
    assert devices.directory_changed(path) == 0
    (tmp_path / "group").mkdir()
    os.utime(path, ns=(7, 7))
    assert devices.directory_changed(path) == 7
    (tmp_path / "group" / "volume").touch()
    assert devices.directory_changed(path) > 7
