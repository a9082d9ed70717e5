# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon that starts while one of two shares of a backend is lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.conformance.fixtures import MIB
from lunshare.drivers.share_options import Share
from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.daemons import Daemon
from tests.system.hosts import Host, Info, block
from tests.system.kernel import Live
from tests.system.lio_node import run
from tests.system.nfs_fixtures import server
from tests.system.nfs_server import BASE, NfsServer, unmounted
from tests.system.test_operators import run_command
from tests.system.volumes import MakeDaemon, MakeHost

__all__ = ["server"]
pytestmark = pytest.mark.system

# Seven guests beside each other on two processors: a creation has taken above 2 s.
DEADLINE = 10
IN_TIME = 6 * DEADLINE
START = 20  # start_wait
_EXPORTS = Path("/etc/exports.d/lunshare-second.exports")


class SecondShare:
    """Another share of the same server, on a filesystem of its own: 1 GiB of ext4."""

    def __init__(self, directory: Path) -> None:
        self._image, self.path = directory / "second.img", directory / "second"
        with self._image.open("wb") as file:
            file.truncate(1024 * MIB)
        run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self.path.mkdir()
        run("mount", "-o", "loop", str(self._image), str(self.path))
        self.share = Share("127.0.0.1", str(self.path), "vers=4.2")
        self.export()

    def export(self) -> None:
        _EXPORTS.write_text(
            f"{self.path} 127.0.0.1(rw,no_root_squash,no_subtree_check,fsid=77)\n"
        )
        run("exportfs", "-r")
        run("exportfs", "-f")

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """It cannot be mounted until the end of the block."""
        _EXPORTS.write_text("")
        run("exportfs", "-r")
        run("exportfs", "-f")
        try:
            yield
        finally:
            self.export()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """No write of it is answered until the end of the block, so no check is."""
        run("fsfreeze", "--freeze", str(self.path))
        try:
            yield
        finally:
            run("fsfreeze", "--unfreeze", str(self.path))

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """It has less free space than the other share."""
        filler = self.path / "filler"
        run("fallocate", "-l", str(800 * MIB), str(filler))
        try:
            yield
        finally:
            filler.unlink()

    def close(self) -> None:
        until(lambda: unmounted(self.share.point(str(BASE))))
        Path(self.share.point(str(BASE))).rmdir()
        _EXPORTS.unlink()
        run("exportfs", "-r")
        run("exportfs", "-f")
        until(lambda: unmounted(str(self.path)))


@pytest.fixture
def second(tmp_path: Path, server: NfsServer) -> Iterator[SecondShare]:
    made = SecondShare(tmp_path)
    yield made
    made.close()


class Filer:
    """A daemon whose backend has both shares, and a volume with a host on each."""

    def __init__(
        self, daemon: MakeDaemon, directory: Path, shares: tuple[NfsServer, SecondShare]
    ) -> None:
        first, second = self.shares = shares
        lines = [f"{each.share.source} -o vers=4.2\n" for each in shares]
        file = directory / "shares"
        file.write_text("".join(lines))
        often = {"backend_stats_polling_interval": 1, "reconcile_interval": 3600}
        backend = {
            "volume_driver": "nfs",
            "nfs_shares_config": file,
            "nfs_timeout": DEADLINE,
            "lio_deadline": DEADLINE,
        }
        enabled = {"enabled_backends": "lvm,nfs", **often}
        self.daemon: Daemon = daemon(node=enabled, others={"nfs": backend}).start()
        self.api: Api = self.daemon.api
        self.kind = self.api.shared_type("nfs")
        with second.full():
            self.kept = self._volume(first.path)
        self.lost = self._volume(second.path)

    def _volume(self, share: Path) -> str:
        """A new volume, which must be on that share."""
        new = {"volume": {"size": 1, "name": "system test", "volume_type": self.kind}}
        volume = str(self.api.must("POST", "/v3/volumes", new)["volume"]["id"])
        until(lambda: self.api.status(volume) != "creating")
        assert self.api.status(volume) == "available", self.failed()
        assert (share / f"volume-{volume}").exists()
        return volume

    def failed(self) -> list[str]:
        """What does not work, with all paths; the node itself must be ready."""
        health = self.api.must("GET", "/v3/lunshare/health")["health"]
        assert health["problems"] == [], health
        return list(health["failed"])

    def attach(self, volume: str, host: Host) -> Info:
        """Attach a host for good; returns what it needs to log in."""
        created = self.api.attach(volume, host)
        self.api.complete(created["id"])
        return dict(created["connection_info"])

    def stop(self) -> None:
        assert self.daemon.process
        self.daemon.process.kill()

    def leave_as_a_reboot_does(self) -> None:
        """Stop it, and remove its exports and mounts."""
        self.stop()
        for volume in (self.kept, self.lost):
            run_command("lunshare-helper", "exports", "--remove", volume, "--yes")
            assert Live(volume).gone
        for each in self.shares:
            point = each.share.point(str(BASE))
            until(lambda point=point: unmounted(point))  # type: ignore[misc]

    def require_refused(self, host: Host) -> None:
        """An attach of the lost volume is refused in time, and names its share."""
        began = time.monotonic()
        status, answer = self.api.create(self.lost, host)
        assert status == 503, answer
        assert self.shares[1].share.source in str(answer)
        assert time.monotonic() - began < IN_TIME


@pytest.fixture
def filer(
    second: SecondShare, daemon: MakeDaemon, tmp_path: Path, server: NfsServer
) -> Filer:
    """After ``second``, which closes when the daemon has deleted its volumes."""
    return Filer(daemon, tmp_path, (server, second))


def test_volumes_of_the_other_share_are_exported_at_a_start(
    filer: Filer, second: SecondShare, host: MakeHost
) -> None:
    """The backend was down, so no host had access until it was attached again."""
    one, two, other = host("one"), host("two"), host("other")
    of_kept, of_lost = filer.attach(filer.kept, one), filer.attach(filer.lost, two)
    one.login(of_kept).write(0, block("kept"))
    two.login(of_lost).write(0, block("lost"))
    one.leave()
    two.leave()
    filer.leave_as_a_reboot_does()
    with second.away():
        filer.daemon.start()
        assert one.login(of_kept).read(0) == block("kept")
        assert Live(filer.lost).gone
        (closed,) = filer.failed()
        assert "pool of backend nfs is closed: not every volume can be used" in closed
        assert "a share cannot be mounted: " in closed
        assert second.share.source in closed
        filer.require_refused(other)
        snapshot = filer.api.snapshot(filer.kept)
        filer.api.delete_snapshot(snapshot)
        assert filer.api.status(filer.lost) == "in-use"
    until(lambda: not filer.failed(), seconds=60)
    until(lambda: Live(filer.lost).enabled, seconds=60)
    assert two.login(of_lost).read(0) == block("lost")


def test_start_with_a_silent_share_serves_the_other_one(
    filer: Filer, second: SecondShare, host: MakeHost
) -> None:
    one, other = host("one"), host("other")
    session = one.login(filer.attach(filer.kept, one))
    filer.stop()
    with second.silent():
        began = time.monotonic()
        filer.daemon.start()
        assert time.monotonic() - began < START
        until(
            lambda: f"did not answer within {DEADLINE} seconds" in str(filer.failed())
        )
        filer.require_refused(other)
        began = time.monotonic()
        for _ in range(2):
            created = filer.api.attach(filer.kept, other, "ro")
            assert filer.api.detach(created["id"])[0] == 200
        assert time.monotonic() - began < IN_TIME
        session.write(0, block("meanwhile"))
    until(lambda: not filer.failed(), seconds=60)
    used = other.login(filer.attach(filer.lost, other))
    used.write(0, block("again"))
    assert used.read(0) == block("again")
