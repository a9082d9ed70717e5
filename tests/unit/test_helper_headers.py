# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What lvm.commit reads from an LVM disk; tests/system compares it with LVM."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from lunshare.drivers.errors import DriverError, InvalidValue
from lunshare.helper.lvm import headers
from lunshare.helper.served import Served

MAGIC = b" LVM2 x[5A%r0N*>"


def disk(
    path: Path,
    areas: list[int],
    text: tuple[int, int, int] = (512, 1000, 1),
    flags: int = 0,
    label: bytes = b"LABELONE",
) -> int:
    """A disk that begins as LVM's do, with its text in the last of these areas."""
    data = bytearray(1 << 20)
    struct.pack_into("<8sQLL8s", data, 512, label, 1, 0, 32, b"LVM2 001")
    lists = [(1 << 19, 0), (0, 0), *((area, 4096) for area in areas), (0, 0)]
    for at, entry in enumerate(lists):
        struct.pack_into("<QQ", data, 544 + 40 + 16 * at, *entry)
    for area in areas[-1:]:
        start = struct.pack("<L16sLQQ", 0, MAGIC, 1, area, 4096)
        data[area : area + len(start)] = start
        data[area + text[0] : area + text[0] + 20] = b"a-group {\nid = 1234"[:20].ljust(
            20
        )
        struct.pack_into("<QQLL", data, area + 40, *text, flags)
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


def test_commit_has_offset_size_and_checksum_of_its_text(tmp_path):
    file = disk(tmp_path / "disk", [8192], (512, 1000, 0xDEADBEEF))
    assert headers.commit(file) == ("a-group", 512, 1000, 0xDEADBEEF)


@pytest.mark.parametrize(
    "given",
    [
        {"areas": []},
        {"areas": [8192], "label": b"LABELTWO"},
        {"areas": [8192], "text": (0, 0, 0)},
        {"areas": [8192], "flags": 1},
        {"areas": [8192, 16384]},
        {"areas": [100]},
    ],
    ids=[
        "no area",
        "no label",
        "no text",
        "ignored",
        "the first is another's",
        "odd area",
    ],
)
def test_a_disk_without_a_commit_has_none(tmp_path, given):
    file = disk(tmp_path / "disk", **given)
    assert headers.commit(file) is None


def test_an_empty_disk_has_none(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(b"")
    assert headers.commit(os.open(path, os.O_RDONLY)) is None


@pytest.mark.parametrize(
    "device",
    [
        *("", "sda", "/etc/shadow", "/dev/../etc/shadow", "/dev/shm/x", "/dev/.x", 7),
        *("/dev/sda\n", "/dev//sda", "/dev/a/./b", "/dev/mqueue/x"),
    ],
)
def test_only_paths_below_dev_are_opened(device):
    with pytest.raises(InvalidValue, match="device"):
        headers.HeaderVerbs(Served(groups=("vg",))).commit({"device": device}, 1)


def test_device_that_is_not_a_disk_is_an_error():
    with pytest.raises(DriverError, match="/dev/null: "):
        headers.HeaderVerbs(Served(groups=("vg",))).commit({"device": "/dev/null"}, 10)
    with pytest.raises(DriverError, match="/dev/nowhere: No such file"):
        headers.HeaderVerbs(Served(groups=("vg",))).commit(
            {"device": "/dev/nowhere"}, 10
        )
