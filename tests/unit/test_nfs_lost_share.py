# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One share of a backend is lost: what is on its other shares can be used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import (
    CommandFailed,
    HelperRefused,
    Misconfigured,
    StorageLost,
    UnknownDisk,
)
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.share_options import Share
from lunshare.drivers.values import Snapshot, Volume
from lunshare.helper.mounts import Mount
from tests.conformance.directory_shares import Directories, Node
from tests.unit.nfs_fixtures import ONE, TWO, build, mounts, node
from tests.unit.test_nfs_shares import answering, silent

__all__ = ["build", "mounts", "node"]

SIZE = 4 * MIB
Build = Callable[..., NfsVolumes]


class Lost(Node):
    """The server of ONE is down when the node boots."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        if argv[0] == "mount" and argv[-2] == ONE.source:
            raise CommandFailed(argv, 32, "mount.nfs: Connection refused\n")
        return super().run(*argv, timeout=timeout)


class LocalLocks(Directories):
    """TWO is mounted with nolock."""

    def table(self) -> Iterable[Mount]:
        for each in super().table():
            local = each.source == TWO.source
            options = "rw,nolock" if local else ""
            yield Mount(each.point, each.device, each.kind, each.source, options)


def on_share(driver: NfsVolumes, share: Share) -> Volume:
    """Create volumes until one is on that share, and return it."""
    for _ in range(8):
        volume = new_volume(SIZE)
        if Path(driver.create(volume).path).parent.name == share.digest:
            return volume
    raise AssertionError(share)


@pytest.fixture
def booted(
    build: Build, node: Node, mounts: Directories
) -> tuple[NfsVolumes, Volume, Volume]:
    """The driver after a boot without ONE, and a volume on each share."""
    driver = build(ONE, TWO, nfs_sparsed_volumes=False)
    driver.check()
    volumes = on_share(driver, ONE), on_share(driver, TWO)
    mounts.mounted.clear()
    node.__class__ = Lost
    fresh = build(ONE, TWO, nfs_sparsed_volumes=False)
    fresh.check()
    return fresh, *volumes


def test_other_shares_are_mounted_after_a_boot(booted, mounts: Directories) -> None:
    """The check ended at the first share, so the second one was never mounted."""
    driver, _, kept = booted
    driver.check()
    assert list(mounts.mounted.values()) == [TWO.source]
    assert driver.disk(kept.id).size == SIZE
    assert driver.extend(Volume(kept.id, 2 * SIZE)).size == 2 * SIZE
    capacity = driver.capacity()
    assert capacity.closed.startswith(
        "not every volume can be used: a share cannot be mounted: mount.nfs:"
        " Connection refused; nas:/srv/one"
    )
    assert capacity.total == mounts.total
    assert capacity.provisioned >= 2 * SIZE


def test_volume_on_a_lost_share_is_not_taken_for_one_without_a_disk(
    booted, tmp_path: Path
) -> None:
    """Not deleted, not created on the other share, and not left out of a list."""
    driver, lost, kept = booted
    driver.capacity()
    snapshot = Snapshot(new_volume(SIZE).id, lost.id, SIZE)
    for call in (
        lambda: driver.disk(lost.id),
        lambda: driver.create(lost),
        lambda: driver.delete(lost.id),
        lambda: driver.extend(Volume(lost.id, 2 * SIZE)),
        lambda: driver.unmanage(lost.id),
        lambda: driver.create_snapshot(snapshot),
        lambda: driver.delete_snapshot(snapshot.id),
        lambda: driver.create_from(lost, snapshot),
        lambda: driver.revert(snapshot),
        driver.disks,
        driver.snapshots,
        driver.manageable,
    ):
        with pytest.raises(StorageLost, match=r"cannot be mounted: .*; nas:/srv/one"):
            call()
    assert "nas:/srv/one" in driver.lost(lost.id)
    assert "nas:/srv/one" in driver.lost(new_volume(SIZE).id)
    assert driver.lost(kept.id) == ""
    assert not (tmp_path / "mnt" / TWO.digest / lost.name).exists()
    driver.delete(kept.id)


def test_share_that_is_mounted_again_opens_the_pool(booted, node: Node) -> None:
    driver, lost, kept = booted
    assert driver.capacity().closed
    node.__class__ = Node
    driver.check()
    capacity = driver.capacity()
    assert (capacity.closed, driver.lost(lost.id)) == ("", "")
    assert {disk.volume_id for disk in driver.disks()} >= {lost.id, kept.id}
    assert capacity.provisioned == sum(disk.size for disk in driver.disks())
    driver.delete(lost.id)
    with pytest.raises(UnknownDisk):
        driver.disk(lost.id)


def test_volumes_on_a_silent_share_are_refused_at_once(
    build: Build, mounts: Directories
) -> None:
    """Each request waited for the deadline, and so did the others behind it."""
    driver = build(ONE, TWO, nfs_timeout=0.3, nfs_sparsed_volumes=False)
    driver.check()
    lost, kept = on_share(driver, ONE), on_share(driver, TWO)
    with silent(mounts, ONE) as waiting:
        driver.check()
        assert (
            "did not answer within 0.3 seconds: nas:/srv/one"
            in driver.capacity().closed
        )
        asked = len(waiting)
        for _ in range(20):
            with pytest.raises(StorageLost, match="did not answer"):
                driver.disk(lost.id)
        assert driver.disk(kept.id).size == SIZE
        assert len(waiting) == asked
    driver.check()
    assert driver.capacity().closed == ""
    assert driver.disk(lost.id).size == SIZE


def test_silent_shares_do_not_wait_for_each_other(
    build: Build, mounts: Directories
) -> None:
    """A check of more than 30 s counts as storage that hangs, so as down."""
    more = [Share("nas", f"/srv/silent-{number}") for number in range(6)]
    driver = build(*more, TWO, nfs_timeout=1.0)
    driver.check()
    with silent(mounts, more[0]) as waiting:
        silent_server = mounts.server
        mounts.server = lambda source: (
            None if source == TWO.source else silent_server(more[0].source)
        )
        began = time.monotonic()
        driver.check()
        assert time.monotonic() - began < 3.0
        assert len(waiting) == len(more)
        assert len(driver.capacity().closed.split("did not answer")) == len(more) + 1


def test_backend_without_any_share_is_down(build: Build, mounts: Directories) -> None:
    driver = build(ONE, TWO, nfs_timeout=0.3)
    driver.check()
    with silent(mounts, ONE):
        silent_server = mounts.server
        mounts.server = lambda source: silent_server(ONE.source)
        with pytest.raises(
            Misconfigured, match=r"did not answer within .*: nas:/srv/one"
        ):
            driver.check()
    driver.check()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("found", ["other:/srv/two", "foreign:/srv", "denied"])
def test_share_that_is_not_what_it_should_be_fails_the_check(
    build: Build, mounts: Directories, node: Node, found: str, lost: bool
) -> None:
    """Its data is at risk, so no other share hides it."""
    driver = build(ONE, TWO)
    driver.check()
    point = TWO.point(driver.options["nfs_mount_point_base"])
    if lost:
        mounts.mounted.pop(ONE.point(driver.options["nfs_mount_point_base"]))
        node.__class__ = Lost
    if found != "denied":
        mounts.mounted[point] = found
        with pytest.raises(Misconfigured, match=f"in place of a share: {found} at"):
            driver.check()
        return

    def server(source: str) -> None:
        if source == TWO.source:
            raise PermissionError(13, "Permission denied")

    mounts.server = server
    with pytest.raises(Misconfigured, match=r"a share is denied: filer:/srv/two at"):
        driver.check()


def test_share_with_local_locks_fails_the_check(
    build: Build, mounts: Directories, node: Node
) -> None:
    driver = build(ONE, TWO)
    driver.check()
    mounts.__class__ = LocalLocks
    mounts.mounted.pop(ONE.point(driver.options["nfs_mount_point_base"]))
    node.__class__ = Lost
    with pytest.raises(Misconfigured, match="is mounted with local locks"):
        driver.check()


def test_share_that_root_does_not_list_fails_the_check(
    build: Build, node: Node
) -> None:
    driver = build(ONE, Share("elsewhere", "/srv"))
    with pytest.raises(
        Misconfigured, match=r"a share is not served: elsewhere:/srv at"
    ):
        driver.check()

    class Refusing(Node):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            if argv[0] == "mount":
                raise HelperRefused(argv[-2], "nfs_shares does not have it")
            return super().run(*argv, timeout=timeout)

    node.__class__ = Refusing
    with pytest.raises(HelperRefused, match="refused elsewhere:/srv"):
        build(ONE, Share("elsewhere", "/srv/more")).check()


def test_stale_share_that_is_in_use_fails_the_check(
    build: Build, mounts: Directories, node: Node
) -> None:
    class Busy(Node):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            if argv[0] == "umount":
                raise CommandFailed(argv, 32, "umount: target is busy.")
            return super().run(*argv, timeout=timeout)

    driver = build(ONE, TWO)
    driver.check()
    node.__class__ = Busy
    with answering(mounts, 116), pytest.raises(Misconfigured, match="is stale"):
        driver.check()


def test_snapshots_on_another_share_are_created_and_deleted(
    build: Build, mounts: Directories
) -> None:
    driver = build(ONE, TWO, nfs_timeout=0.3, nfs_sparsed_volumes=False)
    driver.check()
    volume = on_share(driver, TWO)
    snapshot = Snapshot(new_volume(SIZE).id, volume.id, SIZE)
    with silent(mounts, ONE):
        driver.create_snapshot(snapshot)
        driver.create_snapshot(snapshot)
        driver.delete_snapshot(snapshot.id)
    assert driver.snapshots() == ()
