# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One volume's bytes onto another: only disks of ours, whole, thin, in time."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from drivers import copying
from drivers.errors import DeadlineExceeded, InvalidValue, TargetFailed, Unsupported
from drivers.helper.copying import Copying
from drivers.values import Disk, DiskKind

MIB = 1024**2


class Root:
    """The helper's verb, without its socket."""

    def __init__(self) -> None:
        self._copying = Copying()

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        raise AssertionError(argv)

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        assert verb == "disk.copy"
        return self._copying.copy(arguments, timeout)


def disk(tmp_path: Path, data: bytes = b"", size: int = 4 * MIB) -> Disk:
    """A file of zeros that begins with ``data``."""
    identity = str(uuid.uuid4())
    path = tmp_path / f"volume-{identity}"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)
    return Disk(identity, str(path), size, DiskKind.FILE)


@pytest.mark.parametrize("size", [4 * MIB, 4 * MIB - 512, MIB + 4096, 512])
def test_all_bytes_arrive_also_where_a_size_is_odd(tmp_path, size):
    data = os.urandom(size)
    source, target = disk(tmp_path, data, size), disk(tmp_path)
    for _ in range(2):
        copying.fill(Root(), target, source, 10)
        assert Path(target.path).read_bytes() == data.ljust(4 * MIB, b"\0")
    assert Path(source.path).read_bytes() == data


def test_zeros_take_no_room(tmp_path):
    source, target = disk(tmp_path, bytes(4 * MIB)), disk(tmp_path)
    with open(source.path, "r+b") as file:
        file.seek(3 * MIB + 4096)
        file.write(b"some")
    copying.fill(Root(), target, source, 10)
    assert Path(source.path).stat().st_blocks * 512 >= 4 * MIB
    assert Path(target.path).stat().st_blocks * 512 <= MIB
    assert Path(target.path).read_bytes() == Path(source.path).read_bytes()


def test_a_smaller_disk_is_refused(tmp_path):
    source, target = disk(tmp_path), disk(tmp_path, size=2 * MIB)
    with pytest.raises(InvalidValue, match="give 4194304 bytes or more"):
        copying.fill(Root(), target, source, 10)


@pytest.mark.parametrize("which", ["source", "target"])
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc/shadow", DiskKind.FILE),
        ("/dev/sda", DiskKind.BLOCK),
        ("/dev/shm/../sda/volume-{id}", DiskKind.BLOCK),
        ("{tmp}/link/volume-{id}", DiskKind.FILE),
    ],
)
def test_only_a_volumes_own_disk_is_opened(tmp_path, which, path, kind):
    (tmp_path / "link").symlink_to(tmp_path)
    mine = disk(tmp_path, b"mine")
    path = path.format(tmp=tmp_path, id=mine.volume_id)
    pair = {"source": mine, "target": disk(tmp_path)}
    pair[which] = Disk(mine.volume_id, path, 4 * MIB, kind)
    with pytest.raises(Unsupported, match="on a host") as refused:
        copying.fill(Root(), pair["target"], pair["source"], 10)
    assert isinstance(refused.value.__cause__, TargetFailed)


def test_it_ends_at_its_deadline(tmp_path):
    source, target = disk(tmp_path, b"late"), disk(tmp_path)
    arguments = {
        name: [each.volume_id, each.path, each.size, each.kind]
        for name, each in {"source": source, "target": target}.items()
    }
    with pytest.raises(DeadlineExceeded):
        Copying().copy(arguments, 0)
