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


def test_drivers_do_not_load_pyudev():
    code = "import sys, lunshare.drivers.lvm; print({'pyudev'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()"


def test_mtime_of_a_directory_shows_changes(tmp_path):
    path = str(tmp_path / "group")
    assert devices.directory_changed(path) == 0
    (tmp_path / "group").mkdir()
    os.utime(path, ns=(7, 7))
    assert devices.directory_changed(path) == 7
    (tmp_path / "group" / "volume").touch()
    assert devices.directory_changed(path) > 7
