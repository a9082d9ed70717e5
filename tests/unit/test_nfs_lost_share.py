# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One share of a backend is lost: what is on its other shares can be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import CommandFailed, Misconfigured
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.share_options import Share
from lunshare.drivers.values import Snapshot, Volume
from tests.conformance.directory_shares import Directories, Node
from tests.unit.nfs_fixtures import ONE, TWO, build, mounts, node
from tests.unit.test_nfs_shares import silent

__all__ = ["build", "mounts", "node"]

SIZE = 4 * MIB
Build = Callable[..., NfsVolumes]


class Lost(Node):
    """The server of ONE is down when the node boots."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        if argv[0] == "mount" and argv[-2] == ONE.source:
            raise CommandFailed(argv, 32, "mount.nfs: Connection refused\n")
        return super().run(*argv, timeout=timeout)


def on_share(driver: NfsVolumes, share: Share) -> Volume:
    """Create volumes until one is on that share, and return it."""
    for _ in range(8):
        volume = new_volume(SIZE)
        if Path(driver.create(volume).path).parent.name == share.digest:
            return volume
    raise AssertionError(share)


def test_other_shares_are_mounted_after_a_boot(
    build: Build, node: Node, mounts: Directories
) -> None:
    """The check ended at the first share, so the second one was never mounted."""
    driver = build(ONE, TWO, nfs_sparsed_volumes=False)
    driver.check()
    volume = on_share(driver, TWO)
    mounts.mounted.clear()
    node.__class__ = Lost
    booted = build(ONE, TWO)
    for _ in range(2):
        with pytest.raises(Misconfigured, match=r"nas:/srv/one cannot be mounted"):
            booted.check()
    assert list(mounts.mounted.values()) == [TWO.source]
    assert booted.disk(volume.id).size == SIZE


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
