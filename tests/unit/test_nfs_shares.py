# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Shares that are lost, stale, read-only or do not answer, and pools of several."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DriverError,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.share_options import Share
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.targets.nfs import NfsTarget
from lunshare.drivers.values import Volume
from lunshare.helper.nfs.share_verbs import MAX_WAITING
from tests.conformance.directory_shares import Directories, Node
from tests.stands.waiting import until
from tests.unit.nfs_fixtures import ONE, TWO, build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

SIZE = 2 * MIB
Build = Callable[..., NfsVolumes]


@contextmanager
def silent(mounts: Directories, share: Share) -> Iterator[list[str]]:
    """The share's server does not answer until the end of the block."""
    answer, waiting = threading.Event(), list[str]()

    def server(source: str) -> None:
        if source == share.source:
            waiting.append(source)
            answer.wait(60)

    mounts.server = server
    try:
        yield waiting
    finally:
        answer.set()
        mounts.server = lambda source: None


@contextmanager
def answering(mounts: Directories, number: int) -> Iterator[None]:
    """Every server returns that error."""

    def server(source: str) -> None:
        raise OSError(number, os.strerror(number))

    mounts.server = server
    yield
    mounts.server = lambda source: None


# mounts


def test_share_is_mounted_at_its_mount_point(driver, node, mounts, files) -> None:
    assert node.commands == ["mkdir", "mount"]
    assert mounts.mounted == {str(files): ONE.source}
    driver.check()
    assert node.commands == ["mkdir", "mount"]


def test_lost_mount_is_mounted_again_and_nothing_is_written_below_it(
    driver, node, mounts, files
) -> None:
    mounts.mounted.clear()
    for call in (
        driver.disks,
        driver.capacity,
        lambda: driver.create(new_volume(SIZE)),
        lambda: driver.delete(new_volume(SIZE).id),
        lambda: driver.disk(new_volume(SIZE).id),
    ):
        with pytest.raises(Misconfigured, match="is not mounted"):
            call()
    assert list(files.iterdir()) == []
    driver.check()
    assert node.commands == ["mkdir", "mount"] * 2
    assert driver.create(new_volume(SIZE)).size == SIZE


def test_foreign_mount_at_the_mount_point_is_not_touched(
    driver, node, mounts, files
) -> None:
    mounts.mounted[str(files)] = "other:/srv"
    with pytest.raises(
        Misconfigured, match=r"of a share: other:/srv at .*, not nas:/srv/one"
    ):
        driver.check()
    assert mounts.mounted == {str(files): "other:/srv"}


def test_error_has_the_message_of_mount(build, node) -> None:
    class Refusing(Node):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            if argv[0] == "mount":
                raise CommandFailed(argv, 32, "mount.nfs: access denied by server\n")
            return super().run(*argv, timeout=timeout)

    node.__class__ = Refusing
    with pytest.raises(Misconfigured, match=r"cannot be mounted: .*access denied") as e:
        build().check()
    assert (
        "mount -t nfs -o vers=4.2,nosuid,nodev,noexec,nosymfollow nas:/srv"
        in e.value.remedy
    )


@pytest.mark.parametrize(
    ("number", "why", "remedy"),
    [
        (errno.EROFS, "is read-only", "read-write"),
        (errno.EACCES, "is denied", "no_root_squash"),
        (errno.EPERM, "is denied", "maps root to"),
    ],
)
def test_check_refuses_a_share_that_cannot_be_written(
    driver, mounts, number, why, remedy
) -> None:
    with answering(mounts, number):
        with pytest.raises(Misconfigured, match=why) as raised:
            driver.check()
        assert remedy in raised.value.remedy
        with pytest.raises(Misconfigured, match=why):
            driver.create(new_volume(SIZE))
    driver.check()


def test_stale_share_is_mounted_again(driver, node, mounts, files) -> None:
    found = mounts.mounted[str(files)]

    def server(source: str) -> None:
        if node.commands.count("umount") == 0:
            raise OSError(errno.ESTALE, "Stale file handle")

    mounts.server = server
    driver.check()
    assert node.commands == ["mkdir", "mount", "umount", "mkdir", "mount"]
    assert mounts.mounted == {str(files): found}


def test_check_does_not_wait_for_an_unmount_that_hangs(
    driver, node, mounts, files
) -> None:
    """Linux 6.12: nothing is mounted any more, but umount still asks the server."""
    found = mounts.mounted[str(files)]

    class Waiting(Node):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            output = super().run(*argv, timeout=timeout)
            if argv[0] == "umount":
                raise DeadlineExceeded(" ".join(argv), timeout)
            return output

    def server(source: str) -> None:
        if node.commands.count("umount") == 0:
            raise OSError(errno.ESTALE, "Stale file handle")

    node.__class__, mounts.server = Waiting, server
    driver.check()
    assert node.commands == ["mkdir", "mount", "umount", "mkdir", "mount"]
    assert mounts.mounted == {str(files): found}


def test_error_names_a_stale_share_that_is_in_use(driver, node, mounts) -> None:
    class Busy(Node):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            if argv[0] == "umount":
                raise CommandFailed(argv, 32, "umount: target is busy.")
            return super().run(*argv, timeout=timeout)

    node.__class__ = Busy
    with (
        answering(mounts, errno.ESTALE),
        pytest.raises(Misconfigured, match=r"is stale: .* umount it"),
    ):
        driver.check()


def test_check_leaves_no_file_behind(driver, files) -> None:
    assert list(files.iterdir()) == []


# full


def test_full_share_is_closed_but_available(driver, mounts) -> None:
    mounts.taken = mounts.total - MIB
    driver.check()
    assert "nearly full" in driver.capacity().closed
    with pytest.raises(NoSpace, match=r"nas:/srv/one .*only \d+ bytes are free"):
        driver.create(new_volume(SIZE))
    mounts.taken = 0
    assert driver.capacity().closed == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_share_with_a_full_quota_is_available(driver, mounts, number) -> None:
    with answering(mounts, number):
        driver.check()
        with pytest.raises(NoSpace, match="nas:/srv/one"):
            driver.create(new_volume(SIZE))


# a server that does not answer


def test_server_without_an_answer_fails_at_the_deadline(build, mounts) -> None:
    driver = build(nfs_timeout=0.3)
    driver.check()
    volume = new_volume(SIZE)
    driver.create(volume)
    with silent(mounts, ONE):
        started = time.monotonic()
        with pytest.raises(
            Misconfigured, match=r"did not answer within 0\.3"
        ) as raised:
            driver.check()
        assert "nas" in raised.value.remedy
        for call in (driver.capacity, driver.disks, lambda: driver.disk(volume.id)):
            with pytest.raises(DeadlineExceeded):
                call()
        assert time.monotonic() - started < 10
    driver.check()
    assert driver.disk(volume.id).size == SIZE


def test_retry_waits_for_the_first_request(build, mounts, node) -> None:
    """The first create may still create the file, so no second one starts."""
    driver, volume = build(nfs_timeout=0.3), new_volume(SIZE)
    driver.check()
    driver.disks()
    point = str(Path(driver.options["nfs_mount_point_base"]) / ONE.digest)
    request = {"name": volume.name, "size": SIZE, "preallocate": False, "mode": "0600"}
    with silent(mounts, ONE) as waiting:
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                node.call("share.create", timeout=0.3, point=point, **request)
        assert len(waiting) == 1
    assert driver.create(volume).size == SIZE


def test_number_of_requests_that_wait_for_a_server_is_limited(
    driver, mounts, node
) -> None:
    point = str(Path(driver.options["nfs_mount_point_base"]) / ONE.digest)
    with silent(mounts, ONE) as waiting:
        for _ in range(MAX_WAITING):
            with pytest.raises(DeadlineExceeded):
                node.call(
                    "share.find", timeout=0.01, point=point, name=new_volume(1).name
                )
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=f"behind {MAX_WAITING} others"):
            node.call("share.find", timeout=30, point=point, name=new_volume(1).name)
        assert time.monotonic() - started < 10
        assert len(waiting) == MAX_WAITING


def test_copy_ends_at_its_deadline(driver, mounts, node, files) -> None:
    volume, second = new_volume(SIZE), new_volume(SIZE)
    Path(driver.create(volume).path).write_bytes(b"x" * SIZE)
    request = {"name": second.name, "source": volume.name, "size": SIZE, "mode": "0600"}
    flags = {"preallocate": False, "replace": False, "clone": False}
    with pytest.raises(DeadlineExceeded):
        node.call("share.copy", timeout=0, point=str(files), **request, **flags)
    driver.disks()
    until(lambda: [path.name for path in files.iterdir()] == [volume.name])


# several shares


def test_volume_is_created_on_the_share_with_most_space(
    build: Build, tmp_path: Path
) -> None:
    driver = build(ONE, TWO, nfs_sparsed_volumes=False)
    driver.check()
    for _ in range(4):
        driver.create(new_volume(SIZE))
    found = [Path(disk.path).parent.name for disk in driver.disks()]
    assert sorted(found) == sorted([ONE.digest, TWO.digest] * 2)
    capacity = driver.capacity()
    assert (capacity.total, capacity.provisioned) == (128 * MIB, 4 * SIZE)
    assert capacity.free == capacity.total - 4 * SIZE


def test_failing_share_does_not_affect_volumes_of_another(build, mounts) -> None:
    driver = build(ONE, TWO, nfs_timeout=0.3, nfs_sparsed_volumes=False)
    driver.check()
    volumes = [new_volume(SIZE), new_volume(SIZE)]
    where = {Path(driver.create(each).path).parent.name: each for each in volumes}
    second = build(ONE, TWO, nfs_timeout=0.3)
    with silent(mounts, ONE):
        for each in (driver, second):
            assert each.disk(where[TWO.digest].id).size >= SIZE
            assert each.extend(Volume(where[TWO.digest].id, 2 * SIZE)).size == 2 * SIZE
            with pytest.raises(DeadlineExceeded):
                each.disk(where[ONE.digest].id)
            with pytest.raises(DeadlineExceeded):
                each.delete(where[ONE.digest].id)
            with pytest.raises(DriverError):
                each.disk(
                    new_volume(SIZE).id
                )  # unknown: the share that fails may have it
        driver.check()
        assert "a share did not answer" in driver.capacity().closed
        driver.delete(where[TWO.digest].id)
    driver.check()
    with pytest.raises(UnknownDisk):
        driver.disk(new_volume(SIZE).id)


def test_incomplete_file_on_another_share_is_removed(
    build: Build, tmp_path: Path, mounts: Directories
) -> None:
    driver, volume = build(ONE, TWO), new_volume(SIZE)
    driver.check()
    left = [
        tmp_path / "mnt" / each.digest / f"{volume.name}.new" for each in (ONE, TWO)
    ]
    for path in left:
        path.touch()
    driver.create(volume)
    assert not any(path.exists() for path in left)


# cost


def test_capacity_and_attach_cost_the_same_with_more_volumes(driver, node) -> None:
    def requests(call: Callable[[], object]) -> list[str]:
        node.verbs.clear()
        call()
        return list(node.verbs)

    volumes = [new_volume(MIB)]
    driver.create(volumes[0])
    driver.capacity()
    before = requests(driver.capacity), requests(lambda: driver.disk(volumes[0].id))
    for _ in range(20):
        volumes.append(new_volume(MIB))
        driver.create(volumes[-1])
    after = requests(driver.capacity), requests(lambda: driver.disk(volumes[7].id))
    assert before == after == (["share.capacity"], ["share.find"])
    assert driver.capacity().provisioned == 21 * MIB
    driver.delete(volumes[3].id)
    driver.extend(Volume(volumes[4].id, 2 * MIB))
    assert driver.capacity().provisioned == 21 * MIB


def test_listing_notices_a_file_that_was_removed(driver, files) -> None:
    volume = new_volume(SIZE)
    driver.create(volume)
    (files / volume.name).unlink()
    assert driver.disks() == ()
    assert driver.capacity().provisioned == 0


def test_only_lio_shows_hosts_the_new_size(build) -> None:
    assert build().abilities.extends_open
    assert LioTarget.ABILITIES.shows_growth
    assert not NfsTarget.ABILITIES.shows_growth
