# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A node that starts while one of two shares of a backend is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.main import configure
from lunshare.agent.model.errors import BackendUnavailable
from lunshare.agent.model.operator_records import RecoverRequest
from lunshare.agent.model.records import (
    NewAttachment,
    NewSnapshot,
    NewVolume,
    Page,
    Snapshot,
    Volume,
)
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.services import Services
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.share_options import Share
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import GIB
from tests.conformance.directory_shares import Directories, Node, ShareHelper
from tests.stands.node import CTX, host_connector, initiator
from tests.stands.waiting import until
from tests.unit.nfs_fixtures import ONE, TWO
from tests.unit.test_nfs_lost_share import Lost
from tests.unit.test_nfs_shares import silent

CONFIG = """
[DEFAULT]
enabled_backends = filer,fake
reconcile_interval = 3600
backend_stats_polling_interval = 3600
[filer]
volume_driver = nfs
target_driver = fake
nfs_shares_config = {shares}
nfs_mount_point_base = {path}/mnt
nfs_clone = false
nfs_timeout = 1
[fake]
volume_driver = fake
target_driver = fake
"""


class FileTarget(FakeTarget):
    """Its disks are files on shares, not those of FakeVolumes."""

    def _require_disk(self, volume_id: str) -> None:
        pass


class Booted:
    """A node with two shares, from its boot to its end."""

    def __init__(self, path: Path, helper: ShareHelper, mounts: Directories) -> None:
        self.path, self.helper, self.mounts = path, helper, mounts
        self.root = Node(helper.client, mounts)
        shares = path / "shares"
        shares.write_text(f"{ONE.source}\n{TWO.source}\n")
        self.config = path / "lunshare.conf"
        self.config.write_text(CONFIG.format(shares=shares, path=path))
        self.assembly = self._assemble()

    def _assemble(self) -> Assembly:
        argv = ["--config-file", str(self.config), "--state-path", str(self.path)]
        made = assemble(configure(argv), self.root)
        filer = made.backends["filer"].drivers
        filer.target = FileTarget("filer", filer.target.options, self.root)
        self.services: Services = made
        self.outcome = made.reconcile.run()
        return made

    def reboot(self) -> None:
        """Boot without the server of ONE: nothing is mounted and exported before."""
        self.mounts.mounted.clear()
        self.root.__class__ = Lost
        self.restart()

    def restart(self) -> None:
        """Restart it, with a target that exports nothing."""
        self.assembly.close()
        fake_storage.storage("filer").exports.clear()
        self.assembly = self._assemble()

    def find_server(self) -> None:
        """The server of ONE answers again, and the backend is checked."""
        self.assembly.start(reconcile_again=False)
        self.root.__class__ = Node
        assert self.assembly.backends["filer"].start_check().wait(10)

    def volume(self, share: Share) -> Volume:
        """Return a new volume on that share, which has most space."""
        if not self.services.types.list(CTX):
            specs = {"volume_backend_name": "filer"}
            self.services.types.create(CTX, "filer", extra_specs=specs)
        for _ in range(4):
            new = NewVolume(1, volume_type="filer")
            made = self.services.volumes.create(CTX, new)
            if (self.path / "mnt" / share.digest / f"volume-{made.id}").exists():
                return made
        raise AssertionError(share)

    def attach(self, volume: Volume, host: str) -> None:
        new = NewAttachment(volume.id, connector=host_connector(host))
        made = self.services.attachments.create(CTX, new)
        self.services.attachments.complete(CTX, made.id)

    def live(self, volume: Volume) -> set[str]:
        """The initiators that may log in."""
        found = fake_storage.storage("filer").exports.get(volume.id, {})
        return set(found)

    def status(self, volume: Volume) -> VolumeStatus:
        return self.services.volumes.get(CTX, volume.id).status

    def write(self, volume: Volume, status: str, **intent: str) -> None:
        """Put the row in the middle of an operation, as a killed daemon leaves it."""
        with self.assembly.database.writing() as connection:
            connection.exec_driver_sql(
                "UPDATE volumes SET status = ?, intent = ? WHERE id = ?",
                (status, json.dumps(intent) if intent else None, volume.id),
            )


@pytest.fixture
def booted(tmp_path: Path) -> Iterator[Booted]:
    fake_storage.reset()
    mounts = Directories(64 * GIB)
    helper = ShareHelper(tmp_path / "helper.sock", mounts)
    made = Booted(tmp_path, helper, mounts)
    yield made
    made.assembly.close()
    helper.end()


@pytest.fixture
def taken(booted: Booted, tmp_path: Path) -> tuple[Volume, Volume]:
    """A volume on each share. ONE has less free space only while it is wanted."""
    found = []
    for share, other in ((ONE, TWO), (TWO, ONE)):
        filler = tmp_path / "mnt" / other.digest / "filler"
        filler.write_bytes(b"x" * 2**20)
        found.append(booted.volume(share))
        filler.unlink()
    return found[0], found[1]


def snapshot(booted: Booted, volume: Volume) -> Snapshot:
    return booted.services.snapshots.create(CTX, NewSnapshot(volume.id))


def test_volumes_on_the_other_share_are_exported_at_the_start(
    booted: Booted, taken: tuple[Volume, Volume]
) -> None:
    """The backend was down, so no host had access until it attached again."""
    lost, kept = taken
    booted.attach(lost, "one")
    booted.attach(kept, "two")
    booted.reboot()
    assert booted.live(kept) == {initiator("two")}
    assert booted.live(lost) == set()
    assert booted.status(lost) is VolumeStatus.IN_USE
    assert booted.outcome.failed == []
    health = booted.services.node.health()
    assert (health.problems, health.unknown) == ((), ())
    (closed,) = health.failed
    assert "pool of backend filer is closed: not every volume can be used" in closed
    assert "a share cannot be mounted: " in closed
    booted.find_server()
    until(lambda: booted.live(lost) == {initiator("one")})
    assert booted.live(kept) == {initiator("two")}
    assert booted.services.node.health().failed == ()


def test_volumes_on_a_silent_share_do_not_delay_the_start(
    booted: Booted, taken: tuple[Volume, Volume]
) -> None:
    """Each of them would wait for a deadline, which is a second here."""
    lost, kept = taken
    booted.attach(kept, "two")
    for volume in (lost, *(booted.volume(ONE) for _ in range(8))):
        booted.attach(volume, "one")
    with silent(booted.mounts, ONE):
        began = time.monotonic()
        booted.restart()
        assert time.monotonic() - began < 5.0
        assert booted.live(kept) == {initiator("two")}
        assert booted.outcome.failed == []
        (closed,) = booted.services.node.health().failed
        assert "a share did not answer within 1 seconds: nas:/srv/one" in closed
    booted.find_server()
    until(lambda: booted.live(lost) == {initiator("one")})


def test_requests_on_a_lost_share_are_refused_with_its_name(
    booted: Booted, taken: tuple[Volume, Volume]
) -> None:
    """None of them leaves the volume in an error for good."""
    lost, kept = taken
    before = snapshot(booted, lost)
    booted.reboot()
    services = booted.services
    for refused in (
        lambda: booted.attach(lost, "one"),
        lambda: services.reverter.revert(CTX, lost.id, before.id),
        lambda: snapshot(booted, lost),
    ):
        with pytest.raises(BackendUnavailable, match="a share cannot be mounted: "):
            refused()
        assert booted.status(lost) is VolumeStatus.AVAILABLE
    services.extender.extend(CTX, kept.id, 2, in_use=True)
    services.snapshots.delete(CTX, snapshot(booted, kept).id)
    services.volumes.delete(CTX, lost.id, cascade=True)
    until(lambda: booted.status(lost) is VolumeStatus.ERROR_DELETING)
    booted.find_server()
    booted.assembly.reconcile.run()
    until(lambda: not list(booted.path.glob(f"mnt/*/volume-{lost.id}")))


@pytest.mark.parametrize("status", ["creating", "reverting"])
def test_unfinished_rows_of_a_lost_share_wait_for_it(
    booted: Booted, taken: tuple[Volume, Volume], status: str
) -> None:
    """The step failed, and the volume was in error for good."""
    lost, _ = taken
    before = snapshot(booted, lost)
    booted.write(lost, status, snapshot_id=before.id)
    booted.reboot()
    assert booted.outcome.failed == []
    assert booted.status(lost) == status
    booted.find_server()
    until(lambda: booted.status(lost) is VolumeStatus.AVAILABLE)
    assert len(list(booted.path.glob(f"mnt/*/volume-{lost.id}"))) == 1


def test_detach_does_not_need_the_share(
    booted: Booted, taken: tuple[Volume, Volume]
) -> None:
    lost, _ = taken
    booted.attach(lost, "one")
    booted.reboot()
    (row,) = booted.services.attachments.list(CTX, Page(None, 10))
    booted.services.attachments.delete(CTX, row.id)
    assert booted.status(lost) is VolumeStatus.AVAILABLE


def test_other_backends_are_listed_and_recovered(
    booted: Booted, taken: tuple[Volume, Volume]
) -> None:
    booted.reboot()
    left = new_volume(GIB)
    booted.assembly.backends["fake"].drivers.volumes.create(left)
    (orphan,) = booted.services.orphans.list(CTX)
    assert (orphan.kind, orphan.id, orphan.backend) == ("disk", left.id, "fake")
    recovered = booted.services.orphans.recover(CTX, RecoverRequest(left.id))
    assert recovered.backend == "fake"
