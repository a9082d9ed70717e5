# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What keeps a host's disk from being removed: its users, not its multipath map."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lunshare.host import disk_use

#: Arguments: the disk's name, its holders, and the uuid of a device mapper's device.
MakeDisk = Callable[..., None]

_PATH = "/dev/sdlunshare"  # there is no such device
_DISK = "sdlunshare"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeDisk:
    """Make a block device in sysfs."""
    monkeypatch.setattr(disk_use, "_BLOCK_DEVICES", tmp_path)

    def make(name: str, *holders: str, uuid: str = "") -> None:
        for holder in holders:
            (tmp_path / name / "holders" / holder).mkdir(parents=True)
        if uuid:
            file = tmp_path / name / "dm" / "uuid"
            file.parent.mkdir(parents=True)
            file.write_text(f"{uuid}\n")

    return make


def test_a_multipath_map_is_no_user_of_its_paths(disk: MakeDisk) -> None:
    disk(_DISK, "dm-9990")
    disk("dm-9990", "dm-9991", uuid="mpath-360014050000000000")
    disk("dm-9991", uuid="part1-mpath-360014050000000000")
    assert disk_use.in_use_problem(_PATH) == ""


@pytest.mark.parametrize("part", [False, True], ids=["map", "partition"])
def test_what_uses_a_multipath_map_is_named(disk: MakeDisk, part: bool) -> None:
    disk(_DISK, "dm-9990")
    users = ["dm-9991"] if part else ["dm-9992"]
    disk("dm-9990", *users, uuid="mpath-360014050000000000")
    disk("dm-9991", "dm-9992", uuid="part1-mpath-360014050000000000")
    disk("dm-9992", uuid="LVM-0000")
    assert disk_use.in_use_problem(_PATH) == (
        f"{_PATH} is used by dm-9992: deactivate that first"
    )


def test_the_process_that_has_a_device_open_is_named() -> None:
    controller, terminal = os.openpty()
    path = os.ttyname(terminal)
    assert disk_use.process_with(["/dev/sdlunshare"]) == ""
    with subprocess.Popen(["sleep", "60"], stdin=terminal) as process:
        os.close(terminal)
        answer = disk_use.process_with([path])
        process.kill()
    assert answer == f"process {process.pid} (sleep)"
    assert disk_use.process_with([path]) == ""
    os.close(controller)
