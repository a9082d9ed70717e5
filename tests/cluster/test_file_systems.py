# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""OCFS2 on a shared volume: two hosts write, one of them dies, a third one reads."""

from __future__ import annotations

import threading

import pytest

from tests.cluster import dlm
from tests.cluster.cluster import Cluster, Host
from tests.stands.waiting import until

WRITERS = ("alpha", "beta")
_MODULES = "modprobe ocfs2; modprobe ocfs2_stack_user; mkdir -p /mnt/shared"
_STACK = "echo pcmk >/sys/fs/ocfs2/cluster_stack"
_MKFS = (
    "mkfs.ocfs2 -q -F -N 2 -b 4K -C 4K --cluster-stack=pcmk"
    f" --cluster-name={dlm.NAME} {{disk}} </dev/null"
)
_WRITE = "dd if=/dev/urandom of=/mnt/shared/{name} bs=64k count=4 conv=fsync"


class FileSystem:
    """OCFS2 on a volume that the writers have mounted, and what was written to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.hosts = cluster, cluster.hosts
        volume = cluster.share("shared", 1, rw=WRITERS, ro=["gamma"])
        self.disk = {name: volume.login(name) for name in self.hosts}
        writers = [self.hosts[name] for name in WRITERS]
        dlm.start(writers, cluster.access)
        for host in self.hosts.values():
            host.sh(_MODULES)
        for host in writers:
            host.sh(_STACK)
        writers[0].sh(_MKFS.format(disk=self.disk["alpha"]))
        for host in writers:
            self.mount(host)

    def mount(self, host: Host) -> None:
        host.must("mount", "-t", "ocfs2", self.disk[host.name], "/mnt/shared")

    def mount_disk_of_reader(self, host: Host) -> None:
        """Mount a disk that the target protects.

        The kernel uses no cluster for it. mount.ocfs2, which -i leaves out, wants to
        join one, and fails to write its heartbeat.
        """
        options = ("-o", "ro,cluster_stack=pcmk")
        words = ("-i", "-t", "ocfs2", *options, self.disk[host.name], "/mnt/shared")
        host.must("mount", *words)

    def write(self, host: Host, name: str) -> str:
        """Write a file that is on the disk with the answer; its hash."""
        host.sh(_WRITE.format(name=name))
        return self.hash(host, name)

    def hash(self, host: Host, name: str) -> str:
        return host.must("sha256sum", f"/mnt/shared/{name}").split()[0]

    def write_until_it_dies(self, host: Host, hashes: dict[str, str]) -> None:
        """Write files, each of which is acknowledged."""
        while True:
            name = f"file-{len(hashes)}"
            try:
                hashes[name] = self.write(host, name)
            except OSError:  # the guest was killed
                return


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> FileSystem:
    return FileSystem(cluster)


def test_two_hosts_write_and_see_each_others_files(shared: FileSystem) -> None:
    alpha, beta = (shared.hosts[name] for name in WRITERS)
    first = shared.write(alpha, "of-alpha")
    assert shared.hash(beta, "of-alpha") == first
    second = shared.write(beta, "of-beta")
    assert shared.hash(alpha, "of-beta") == second
    changed = shared.write(beta, "of-alpha")
    assert shared.hash(alpha, "of-alpha") == changed != first


def test_a_host_that_may_only_read_does_not_mount_it_beside_a_writer(
    shared: FileSystem,
) -> None:
    """The journal of a mounted writer is to be replayed, which is a write."""
    with pytest.raises(AssertionError, match=r"cannot mount .* read-only"):
        shared.mount_disk_of_reader(shared.hosts["gamma"])


def test_a_writer_that_dies_is_fenced_and_the_other_one_replays_its_journal(
    shared: FileSystem,
) -> None:
    alpha, beta, gamma = shared.hosts.values()
    hashes: dict[str, str] = {}
    writer = threading.Thread(target=shared.write_until_it_dies, args=(alpha, hashes))
    writer.start()
    until(lambda: len(hashes) > 20, "alpha has written")
    alpha.kill()
    writer.join()
    assert {name: shared.hash(beta, name) for name in hashes} == hashes
    assert "alpha" in shared.cluster.lunshare("fences")
    last = shared.write(beta, "after")
    beta.must("umount", "/mnt/shared")
    beta.sh(f"fsck.ocfs2 -n -f {shared.disk['beta']}")
    shared.mount_disk_of_reader(gamma)
    with pytest.raises(AssertionError, match="Read-only file system"):
        gamma.must("touch", "/mnt/shared/not-allowed")
    assert shared.hash(gamma, "after") == last
    assert {name: shared.hash(gamma, name) for name in hashes} == hashes
