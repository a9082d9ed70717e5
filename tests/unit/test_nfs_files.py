# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign files on a share, and image headers in disks, do no harm."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import (
    CopyDiffers,
    DiskBusy,
    DriverError,
    InvalidValue,
    LostSnapshot,
    NoSpace,
    UnknownReference,
)
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.values import Snapshot, Volume
from lunshare.helper import disk_paths
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.mounts import open_directory as mounts_directory
from lunshare.helper.nfs import open_files
from lunshare.helper.nfs.files import OpenShare, copy
from lunshare.helper.nfs.share_requests import FileCopy
from tests.conformance.directory_shares import Directories, Node
from tests.unit.nfs_fixtures import build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

SIZE = 2 * MIB
SECRET = b"a file of the node that no guest may read"


@pytest.fixture
def volume(driver: NfsVolumes) -> Volume:
    volume = new_volume(SIZE)
    driver.create(volume)
    return volume


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


def qcow2(backing: Path) -> bytes:
    """The header of an image of 1 GiB with a backing file."""
    name = str(backing).encode()
    header = b"QFI\xfb" + (2).to_bytes(4, "big") + (104).to_bytes(8, "big")
    header += len(name).to_bytes(4, "big") + (16).to_bytes(4, "big")
    header += (1 << 30).to_bytes(8, "big")
    return header.ljust(104, b"\0") + name


def test_image_header_in_a_volume_stays_plain_bytes(
    driver: NfsVolumes, volume: Volume, secret: Path, mounts: Directories
) -> None:
    """CVE-2024-32498: a program that trusts the header opens the backing file."""
    header = qcow2(secret)
    Path(driver.disk(volume.id).path).write_bytes(header.ljust(SIZE, b"."))

    grown = driver.extend(Volume(volume.id, 2 * SIZE))
    assert grown.size == 2 * SIZE
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, 2 * SIZE)
    driver.create_snapshot(snapshot)
    copied = driver.create_from(new_volume(3 * SIZE), snapshot)
    assert copied.size == 3 * SIZE
    assert driver.revert(snapshot) == grown
    driver.unmanage(volume.id)
    managed = driver.manage(new_volume(2 * SIZE), f"unmanaged-{volume.name}")
    with disk_paths.open_disk(managed, mounts) as found:
        assert found.stat.st_size == managed.size == 2 * SIZE
        exported = Path(found.path).read_bytes()

    wanted = header.ljust(SIZE, b".").ljust(2 * SIZE, b"\0")
    assert exported == wanted
    assert Path(copied.path).read_bytes() == wanted.ljust(3 * SIZE, b"\0")
    assert secret.read_bytes() == SECRET


def test_image_cannot_be_managed_as_a_raw_disk(
    driver: NfsVolumes, files: Path, secret: Path
) -> None:
    (files / "theirs.qcow2").write_bytes(qcow2(secret))
    with pytest.raises(UnknownReference, match="it is a qcow2 image; convert"):
        driver.manage(new_volume(SIZE), "theirs.qcow2")
    assert (files / "theirs.qcow2").read_bytes() == qcow2(secret)


def test_only_a_regular_file_with_one_name_can_be_managed(
    driver: NfsVolumes, files: Path, secret: Path
) -> None:
    (files / "link").symlink_to(secret)
    (files / "second").hardlink_to(secret)
    (files / "directory").mkdir()
    os.mkfifo(files / "pipe")
    listed = {found.reference: found.problem for found in driver.manageable()}
    for name in ("link", "second", "directory", "pipe"):
        assert "regular file with one name" in listed[name]
        with pytest.raises(UnknownReference, match="regular file with one name"):
            driver.manage(new_volume(SIZE), name)
    assert driver.disks() == ()
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("way", ["symlink", "hardlink"])
def test_link_with_the_name_of_a_volume_is_not_followed(
    driver: NfsVolumes, files: Path, volume: Volume, secret: Path, way: str
) -> None:
    path = files / volume.name
    path.unlink()
    if way == "symlink":
        path.symlink_to(secret)
    else:
        path.hardlink_to(secret)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, SIZE)
    for call in (
        lambda: driver.extend(Volume(volume.id, 2 * SIZE)),
        lambda: driver.create(volume),
        lambda: driver.create_snapshot(snapshot),
        lambda: driver.disk(volume.id),
        lambda: driver.unmanage(volume.id),
        lambda: driver.delete(volume.id),
    ):
        with pytest.raises(DriverError, match="not a regular file with one name"):
            call()
    assert driver.disks() == ()
    assert secret.read_bytes() == SECRET
    assert os.path.lexists(path)


@pytest.mark.parametrize("verb", ["extend", "copy", "copy from", "unmanage", "delete"])
def test_no_verb_of_the_helper_follows_a_link(
    files, node, volume, secret, verb
) -> None:
    """The server may change the file after the daemon checked it."""
    (files / volume.name).unlink()
    (files / volume.name).symlink_to(secret)
    other = f"volume-{uuid.uuid4()}"
    plain = {"point": str(files), "name": volume.name}
    file = {"size": SIZE, "preallocate": False, "mode": "0600"}
    flags = {"replace": True, "clone": False}
    requests = {
        "extend": ("extend", {**plain, "size": SIZE, "preallocate": False}),
        "copy": ("copy", {**plain, **file, **flags, "source": other}),
        "copy from": (
            "copy",
            {**plain, **file, "name": other, "source": volume.name}
            | {"replace": False, "clone": False},
        ),
        "unmanage": ("unmanage", plain),
        "delete": ("delete", plain),
    }
    name, arguments = requests[verb]
    with pytest.raises(DriverError, match="not a regular file with one name"):
        node.call(f"share.{name}", **arguments)
    assert secret.read_bytes() == SECRET
    assert os.path.lexists(files / volume.name)


def test_file_that_becomes_a_link_is_not_followed(
    files: Path, driver: NfsVolumes, volume: Volume, secret: Path
) -> None:
    share = mounts_directory(str(files))
    try:
        (files / volume.name).unlink()
        (files / volume.name).symlink_to(secret)
        with pytest.raises(OSError, match="symbolic links"):
            os.close(open_files.open_plain(share, volume.name))
    finally:
        os.close(share)


def test_link_with_the_name_of_an_incomplete_file_is_replaced(
    driver: NfsVolumes, files: Path, secret: Path
) -> None:
    volume = new_volume(SIZE)
    (files / f"{volume.name}.new").symlink_to(secret)
    assert driver.create(volume).size == SIZE
    assert secret.read_bytes() == SECRET
    assert not (files / f"{volume.name}.new").is_symlink()


def test_file_has_the_configured_mode(build, driver, files, volume) -> None:
    assert (files / volume.name).stat().st_mode & 0o7777 == 0o600
    wide, other = build(nfs_file_mode="0666"), new_volume(SIZE)
    wide.create(other)
    assert (files / other.name).stat().st_mode & 0o7777 == 0o666


def test_sparse_file_uses_no_space_and_preallocated_file_all(
    build, driver, files, volume
) -> None:
    assert (files / volume.name).stat().st_blocks == 0
    thick, other = build(nfs_sparsed_volumes=False), new_volume(SIZE)
    thick.create(other)
    assert (files / other.name).stat().st_blocks * 512 == SIZE


def test_copy_preserves_holes(driver, files, volume) -> None:
    with (files / volume.name).open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"x" * 4096)
        os.fsync(file.fileno())
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, SIZE)
    driver.create_snapshot(snapshot)
    assert (files / snapshot.name).stat().st_blocks * 512 < SIZE // 2
    assert (files / snapshot.name).read_bytes() == (files / volume.name).read_bytes()


def test_managed_file_is_extended_to_a_full_block(driver, files) -> None:
    (files / "odd.img").write_bytes(b"x" * 1000)
    disk = driver.manage(new_volume(500), "odd.img")
    assert disk.size == 4096
    assert Path(disk.path).read_bytes() == (b"x" * 1000).ljust(4096, b"\0")


def test_file_of_another_program_is_not_a_volume(driver, files) -> None:
    for name in (".nfs000001", "volume-1", f"volume-{uuid.uuid4()}.new", "_snapshot-1"):
        (files / name).touch()
    assert driver.disks() == driver.snapshots() == ()
    listed = {found.reference for found in driver.manageable()}
    assert listed == {"volume-1", "_snapshot-1"}


def test_preallocated_copy_without_space_leaves_nothing(build, files, mounts) -> None:
    thick, volume = build(nfs_sparsed_volumes=False), new_volume(40 * MIB)
    thick.create(volume)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, volume.size)
    with pytest.raises(NoSpace, match="bytes are wanted"):
        thick.create_snapshot(snapshot)
    assert [path.name for path in files.iterdir()] == [volume.name]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("find", {"name": "../volume"}),
        ("find", {"name": "passwd"}),
        ("find", {"name": f"volume-{uuid.uuid4()}.new"}),
        ("delete", {"name": f"volume-{uuid.uuid4()}/../x"}),
        (
            "extend",
            {"name": f"volume-{uuid.uuid4()}", "size": -1, "preallocate": False},
        ),
        ("extend", {"name": f"volume-{uuid.uuid4()}", "size": 1, "preallocate": 1}),
        (
            "extend",
            {"name": f"volume-{uuid.uuid4()}", "size": 2**63, "preallocate": True},
        ),
        ("capacity", {"name": "more"}),
    ],
)
def test_helper_refuses_other_names_and_sizes(
    driver, files, node, verb, arguments
) -> None:
    with pytest.raises(InvalidValue):
        node.call(f"share.{verb}", point=str(files), **arguments)


@pytest.mark.parametrize("mode", ["0777", "4755", 0o600, None])
def test_helper_refuses_another_file_mode(driver, files, node, mode) -> None:
    request = {"name": f"volume-{uuid.uuid4()}", "size": 1, "preallocate": False}
    with pytest.raises(InvalidValue, match="0600, 0660, 0666"):
        node.call("share.create", point=str(files), **request, mode=mode)


def test_helper_refuses_a_directory_that_is_not_a_share(tmp_path, node) -> None:
    name, why = f"volume-{uuid.uuid4()}", ("is not mounted", "are mounted below")
    for base, message in zip((tmp_path / "mnt", tmp_path), why, strict=True):
        point = base / ("0" * 32)
        point.mkdir(parents=True)
        (point / name).write_bytes(SECRET)
        with pytest.raises(DriverError, match=message):
            node.call("share.delete", point=str(point), name=name)
        assert (point / name).read_bytes() == SECRET


def test_helper_refuses_a_foreign_mount(
    tmp_path: Path, node: Node, mounts: Directories
) -> None:
    """Such as /home: a file there could be managed and exported."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "theirs").write_bytes(SECRET)
    mounts.mounted[str(tmp_path / "home")] = "nas:/home"
    request: dict[str, Any] = {"reference": "theirs", "size": 1, "mode": "0600"}
    request["name"] = f"volume-{uuid.uuid4()}"
    with pytest.raises(InvalidValue, match="a mount point of a share"):
        node.call("share.manage", point=str(tmp_path / "home"), **request)
    assert (tmp_path / "home" / "theirs").read_bytes() == SECRET


def test_name_that_is_not_text_does_not_hide_other_files(driver, files, volume) -> None:
    (Path(os.fsdecode(os.fsencode(files) + b"/\xff\xfe"))).touch()
    (files / "two\nlines").touch()
    assert [disk.volume_id for disk in driver.disks()] == [volume.id]
    assert driver.manageable() == ()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.EOPNOTSUPP])
def test_disk_with_unknown_open_state_is_not_touched(
    driver, files, volume, monkeypatch, number
) -> None:
    """The server's lock service is down, or does not exist."""

    def refuse(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    snapshot = Snapshot(str(uuid.uuid4()), volume.id, SIZE)
    before = (files / volume.name).stat()
    kernel = SimpleNamespace(
        F_WRLCK=fcntl.F_WRLCK,
        F_UNLCK=fcntl.F_UNLCK,
        F_OFD_GETLK=fcntl.F_OFD_GETLK,
        fcntl=refuse,
    )
    monkeypatch.setattr(open_files, "fcntl", kernel)
    for call in (
        lambda: driver.delete(volume.id),
        lambda: driver.unmanage(volume.id),
        lambda: driver.create_snapshot(snapshot),
    ):
        with pytest.raises(DiskBusy, match=r"is unknown .* lock service"):
            call()
    assert (files / volume.name).stat() == before
    monkeypatch.undo()
    driver.delete(volume.id)


def test_copy_with_wrong_bytes_is_not_renamed(driver, files, mounts, volume) -> None:
    """The server loses bytes that it confirmed. The copy is read back."""
    (files / volume.name).write_bytes(os.urandom(SIZE))
    name = f"volume-{uuid.uuid4()}"
    lost: list[int] = []

    def loses(done: int) -> None:
        if done and not lost:
            with (files / f"{name}.new").open("r+b") as file:
                file.write(b"lost")
            lost.append(done)

    [mount] = mounts.table()
    flags = {"preallocate": False, "replace": False, "clone": False}
    request = FileCopy(str(files), name, volume.name, SIZE, mode=0o600, **flags)
    with (
        mounts.enter(mount) as directory,
        pytest.raises(CopyDiffers, match=f"{name} is not a copy of its source"),
    ):
        copy(OpenShare(directory, mount, mounts, is_exported, loses), request)
    assert lost
    assert [path.name for path in files.iterdir()] == [volume.name]


def test_snapshot_with_a_truncated_file_is_lost(driver, files, volume) -> None:
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, SIZE)
    driver.create_snapshot(snapshot)
    Path(files / volume.name).write_bytes(b"new".ljust(SIZE, b"."))
    os.truncate(files / snapshot.name, SIZE // 2)
    for call in (
        lambda: driver.revert(snapshot),
        lambda: driver.create_from(new_volume(SIZE), snapshot),
    ):
        with pytest.raises(LostSnapshot, match="delete it"):
            call()
    assert (files / volume.name).read_bytes() == b"new".ljust(SIZE, b".")
    assert driver.disks() == (driver.disk(volume.id),)
    driver.delete_snapshot(snapshot.id)
