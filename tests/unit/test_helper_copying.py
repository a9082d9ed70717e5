# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Copy a volume's bytes: only volumes' disks, complete, thin, in time."""

from __future__ import annotations

import fcntl
import os
import struct
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers import migration
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import (
    CopyDiffers,
    DeadlineExceeded,
    DiskBusy,
    DriverError,
    HelperRefused,
    InvalidValue,
    TargetFailed,
    Unsupported,
)
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper import verification as proofs
from lunshare.helper.copying import CopyVerbs
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.served import Served

MIB = 1024**2
SERVED = Served(groups=("vg", "no-such-group"), directories=("/",))


class Root(NoRoot):
    """The helper's verb, without its socket."""

    def __init__(self) -> None:
        self._copying = CopyVerbs(SERVED, is_exported)

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
def test_all_bytes_are_copied_for_every_size(tmp_path, size):
    data = os.urandom(size)
    source, target = disk(tmp_path, data, size), disk(tmp_path)
    for _ in range(2):
        migration.fill(Root(), target, source, 10)
        assert Path(target.path).read_bytes() == data.ljust(4 * MIB, b"\0")
    assert Path(source.path).read_bytes() == data


def test_zeros_use_no_space(tmp_path):
    source, target = disk(tmp_path, bytes(4 * MIB)), disk(tmp_path)
    with open(source.path, "r+b") as file:
        file.seek(3 * MIB + 4096)
        file.write(b"some")
    migration.fill(Root(), target, source, 10)
    assert Path(source.path).stat().st_blocks * 512 >= 4 * MIB
    assert Path(target.path).stat().st_blocks * 512 <= MIB
    assert Path(target.path).read_bytes() == Path(source.path).read_bytes()


@pytest.mark.parametrize("which", ["source", "target"])
@pytest.mark.parametrize("kind", [fcntl.F_RDLCK, fcntl.F_WRLCK])
def test_file_that_a_host_has_locked_is_not_copied(tmp_path, which, kind):
    """QEMU on a host locks its disks (NFS). What it writes next would be lost."""
    source, target = disk(tmp_path, b"some"), disk(tmp_path)
    held = source if which == "source" else target
    with open(held.path, "r+b") as file:
        wanted = struct.pack("hhqqi4x", kind, os.SEEK_SET, 100, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        with pytest.raises(DiskBusy, match="its file is locked") as raised:
            migration.fill(Root(), target, source, 10)
        assert raised.value.volume_id == held.volume_id
        assert Path(target.path).read_bytes() == bytes(4 * MIB)
    migration.fill(Root(), target, source, 10)


def test_a_smaller_disk_is_refused(tmp_path):
    source, target = disk(tmp_path), disk(tmp_path, size=2 * MIB)
    with pytest.raises(InvalidValue, match="give 4194304 bytes or more"):
        migration.fill(Root(), target, source, 10)


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
        migration.fill(Root(), pair["target"], pair["source"], 10)
    assert isinstance(refused.value.__cause__, TargetFailed)


def test_copy_ends_at_its_deadline(tmp_path):
    source, target = disk(tmp_path, b"late"), disk(tmp_path)
    arguments = {
        name: asdict(each)
        for name, each in {"source": source, "target": target}.items()
    }
    with pytest.raises(DeadlineExceeded):
        CopyVerbs(SERVED, is_exported).copy(arguments, 0)


def test_copy_with_wrong_bytes_fails(tmp_path):
    """Zeros of the source are not written, so the target must have zeros there."""
    source, target = disk(tmp_path, b"some".ljust(MIB, b".")), disk(tmp_path)
    with open(target.path, "r+b") as file:
        file.seek(3 * MIB)
        file.write(b"not zeros")
    with pytest.raises(CopyDiffers, match=f"{target.path} is not a copy of its source"):
        migration.fill(Root(), target, source, 10)


def test_bytes_after_the_end_of_the_source_must_be_zeros(tmp_path):
    source, target = disk(tmp_path, b"some", MIB), disk(tmp_path)
    with open(target.path, "r+b") as file:
        file.seek(4 * MIB - 1)
        file.write(b"x")
    with pytest.raises(CopyDiffers):
        migration.fill(Root(), target, source, 10)


def test_source_that_became_shorter_is_refused(tmp_path):
    source, target = disk(tmp_path, b"some"), disk(tmp_path)
    os.truncate(source.path, 2 * MIB)
    with pytest.raises(DriverError, match="has 2097152 bytes and not 4194304"):
        migration.fill(Root(), target, source, 10)


@pytest.mark.parametrize("proof", [None, {}, {"size": 4 * MIB - 1}])
def test_copy_without_verification_fails(tmp_path, proof):
    class Forgetful(Root):
        def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
            super().call(verb, timeout=timeout, **arguments)
            return proof

    source, target = disk(tmp_path), disk(tmp_path)
    with pytest.raises(CopyDiffers, match="the helper's proof is"):
        migration.fill(Forgetful(), target, source, 10)


@pytest.mark.parametrize("at", [0, MIB - 1, MIB, 4 * MIB - 1])
def test_byte_at_any_offset_makes_another_disk(tmp_path, at):
    some = bytes(MIB) + b"some"
    other = bytearray(some.ljust(4 * MIB, b"\0"))
    other[at] ^= 1
    with pytest.raises(CopyDiffers, match=r"bytes \d+ to \d+ are others"):
        verified(disk(tmp_path, some), disk(tmp_path, bytes(other)))


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("at", [0, 4 * MIB - 1, 4 * MIB, 8 * MIB, 9 * MIB + 511])
def test_a_byte_of_any_step_makes_another_disk(tmp_path, at, holes):
    """With an odd end, and with holes around the byte of the sparse source."""
    size = 9 * MIB + 512
    source, target = disk(tmp_path, size=size), disk(tmp_path, size=size)
    verified(source, target, holes)
    with open(target.path, "r+b") as file:
        file.seek(at)
        file.write(b"x")
    start = at // (4 * MIB) * 4 * MIB
    end = min(start + 4 * MIB, size)
    with pytest.raises(CopyDiffers, match=f"bytes {start} to {end} are others"):
        verified(source, target, holes)


def test_steps_that_changed_places_make_another_disk(tmp_path):
    parts = b"a" * 4 * MIB, b"b" * 4 * MIB
    source = disk(tmp_path, b"".join(parts), 8 * MIB)
    target = disk(tmp_path, b"".join(reversed(parts)), 8 * MIB)
    with pytest.raises(CopyDiffers, match=f"bytes 0 to {4 * MIB} are others"):
        verified(source, target)


def test_zeros_are_holes_written_zeros_or_beyond_a_shorter_end(tmp_path):
    some = bytes(MIB) + b"some"
    for source in (some, some.ljust(4 * MIB, b"\0")):
        for target in (some, some.ljust(4 * MIB, b"\0")):
            for size in (4 * MIB, 3 * MIB, MIB + 4):
                verified(disk(tmp_path, source[:size], size), disk(tmp_path, target))


def verified(source: Disk, target: Disk, holes: bool = False) -> None:
    with open(source.path, "rb") as old, open(target.path, "rb") as new:
        files = old.fileno(), new.fileno()
        size = source.size
        proofs.verify(target.path, files, size, lambda done: None, holes=holes)


# the parts of thick volumes: what is opened is tested in tests/system

UUID = "11111111-2222-4333-8444-555555555555"
PART = f"volume-{UUID}.new"


@pytest.mark.parametrize(
    "device",
    [
        "/dev/sda",
        f"/dev/vg/{PART.removesuffix('.new')}",
        f"/dev/vg/x{PART}",
        f"/dev/vg/{PART}/x",
        f"/dev/shm/{PART}",
        f"/dev/mqueue/{PART}",
        f"/dev/../{PART}",
        f"/dev/{PART}",
        f"/dev/vg/_snapshot-{UUID}",
        f"/dev/vg/deleted-{UUID}",
        f"/dev/{'x' * 128}/{PART}",
        f"/dev/vg/{PART}\n",
        3,
    ],
)
def test_only_parts_of_volumes_are_zeroed(device):
    given = {"device": device, "start": 0, "length": None}
    with pytest.raises(InvalidValue):
        CopyVerbs(SERVED, is_exported).zero(given, 1)
    kept = f"/dev/vg/_snapshot-{UUID}"
    with pytest.raises(InvalidValue):
        CopyVerbs(SERVED, is_exported).copy_part(
            {"source": kept, "target": device, "length": 512}, 1
        )


def test_part_in_a_group_that_is_not_served_is_not_zeroed():
    given = {"device": f"/dev/other/{PART}", "start": 0, "length": None}
    with pytest.raises(HelperRefused, match="does not name its volume group"):
        CopyVerbs(SERVED, is_exported).zero(given, 1)


@pytest.mark.parametrize("start", [-512, 1, 2**63, "0", True, None])
def test_only_complete_sectors_are_zeroed(start):
    given = {"device": f"/dev/vg/{PART}", "start": start, "length": 512}
    with pytest.raises(InvalidValue, match="start"):
        CopyVerbs(SERVED, is_exported).zero(given, 1)


def test_missing_part_is_an_error(tmp_path):
    given = {"device": f"/dev/no-such-group/{PART}", "start": 0, "length": None}
    with pytest.raises(DriverError, match="No such file"):
        CopyVerbs(SERVED, is_exported).zero(given, 1)
