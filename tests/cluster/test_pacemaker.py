# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pacemaker moves ext4 on a shared volume to the host that is left.

Both hosts may write to the volume, so nothing but the fence keeps the lost one from
the file system that the other one has mounted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster, Host
from tests.cluster.pacemaker import Pacemaker
from tests.stands.waiting import until

_PLACE = "/mnt/data"
#: Files, each on the disk before it is noted; until one fails.
_WRITE = f"""
n=0
while n=$((n + 1)) && head -c 65536 /dev/urandom >/run/next \\
    && cp /run/next {_PLACE}/$1-$n && sync -f {_PLACE}/$1-$n; do
    hash=$(sha256sum </run/next)
    echo "${{hash%-}}$1-$n" >>/run/written
done
echo ended >/run/writer
"""
#: What a lost session has not written fails after a second.
_IMPATIENT = (
    "for each in /sys/class/iscsi_session/*/recovery_tmo; do echo 1 >$each; done"
)
_SECONDS = 120.0


class Scene:
    """Two hosts, one of which has the file system and writes files to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = [cluster.hosts[name] for name in ("alpha", "beta")]
        self.volume = cluster.share("data", 1, rw=["alpha", "beta"])
        self.disk = {host.name: self._login(host) for host in self.hosts}
        self.hosts[0].must("mkfs.ext4", "-q", self.disk["alpha"])
        for host in self.hosts:
            host.sh(f"mkdir -p {_PLACE}")
            host.put("/run/write", _WRITE)
        self.pacemaker = Pacemaker(self.hosts, cluster.access)
        self.pacemaker.add_file_system(self.disk["alpha"], _PLACE)
        until(lambda: self.active() is not None, "it is mounted", _SECONDS)

    def _login(self, host: Host) -> str:
        device = self.volume.login(host.name)
        host.sh(_IMPATIENT)
        return device

    def has_mounted(self, host: Host) -> bool:
        """Whether a host has the file system."""
        return not host.ask("run", ["mountpoint", "-q", _PLACE])[0]

    def active(self) -> Host | None:
        """The host that has it."""
        return next(filter(self.has_mounted, self.hosts), None)

    def other(self, host: Host) -> Host:
        """The other one of the two."""
        return next(each for each in self.hosts if each is not host)

    def begin_to_write(self, host: Host) -> None:
        """Let it write files until that fails."""
        host.sh(
            f": >/run/written; rm -f /run/writer; setsid sh /run/write {host.name}"
            " >/run/output 2>&1 </dev/null &"
        )
        until(lambda: len(self.written(host)) > 5, "it writes", _SECONDS)

    def written(self, host: Host) -> list[str]:
        """The files that it has, each with its hash: what was acknowledged."""
        return host.must("cat", "/run/written").splitlines()

    def is_fenced(self, host: Host) -> bool:
        """Whether a host is fenced, with proof."""
        words = ["lunshare", "fences", "--json"]  # its code says also: pending
        _, text = self.cluster.node.ask("run", words)
        fences = json.loads(text)
        return (host.name, "fenced") in [(f["host"], f["status"]) for f in fences]

    def lose(self, lost: Host, survivor: Host) -> None:
        """Wait until a host that is lost is fenced, and its file system is moved."""
        began = time.monotonic()
        until(lambda: self.is_fenced(lost), f"{lost.name} is fenced", _SECONDS)
        fenced = time.monotonic() - began
        until(lambda: self.has_mounted(survivor), "it has moved", _SECONDS)
        moved = time.monotonic() - began
        print(f"{lost.name}: fenced after {fenced:.1f} s, moved after {moved:.1f} s")
        survivor.sh(f"date >{_PLACE}/of-{survivor.name}; sync -f {_PLACE}")

    def check_written(self, lost: Host, survivor: Host) -> None:
        """The writes of the lost host fail, and nothing acknowledged is lost."""
        ended = ["test", "-e", "/run/writer"]
        until(lambda: not lost.ask("run", ended)[0], "its writes fail", _SECONDS)
        survivor.put("/run/lost", lost.must("cat", "/run/written"))
        survivor.sh(f"cd {_PLACE} && sha256sum --quiet -c /run/lost")

    def end(self) -> None:
        """Stop the cluster; the file system is whole."""
        lost = [host for host in self.hosts if self.is_fenced(host)]
        print(f"still fenced at the end: {[host.name for host in lost]}")
        self.pacemaker.stop()
        for host in self.hosts:
            host.sh(f"umount -l {_PLACE} || true")
            host.sh("iscsiadm -m node -u || true")
            self.cluster.node.ask("run", ["lunshare", "unfence", host.name])
        host = self.hosts[0]
        disk = self.volume.login(host.name)
        host.must("fsck.ext4", "-n", "-f", disk)
        host.must("iscsiadm", "-m", "node", "-u")
        for host in self.hosts:
            self.cluster.lunshare("detach", self.volume.id, host.name)


@pytest.fixture(scope="module")
def scene(cluster: Cluster) -> Iterator[Scene]:
    made = Scene(cluster)
    yield made
    made.end()


def test_a_frozen_host_is_fenced_and_its_file_system_moves(scene: Scene) -> None:
    lost = scene.active()
    assert lost is not None
    survivor = scene.other(lost)
    scene.begin_to_write(lost)
    lost.freeze()
    try:
        scene.lose(lost, survivor)
    finally:
        lost.thaw()
    scene.check_written(lost, survivor)
