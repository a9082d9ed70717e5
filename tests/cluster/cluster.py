# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A storage node and three hosts, each a guest, and a volume that they share."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.lab.steps import step
from tests.stands.quick_guest import QuickGuest, build_network
from tests.stands.waiting import until

NETWORK, NETWORK6 = "10.231.8", "fd00:231:8:"
HOSTS = ("alpha", "beta", "gamma")
#: Machines without a disk, of which the cluster has the network only (diskless.py).
DISKLESS = ("thin1", "thin2", "thin3")
#: Programs of this machine, which is the same Debian.
BORROW = ("python", "-m", "tests.lab.borrow", "--missing=/usr", "--")
AGENT = "tests/cluster/install_agent"
_BOOT_SECONDS = 600.0


class Access(NamedTuple):
    """What a client needs to call the node's API."""

    endpoint: str
    user: str
    password: str
    cacert: str
    certificate: str


class Host(QuickGuest):
    """A host with open-iscsi, and with what this machine has installed in /usr."""

    def __init__(self, name: str, number: int, directory: Path) -> None:
        super().__init__(name, f"{NETWORK}.{number}", directory)
        self.number, self.address6 = number, f"{NETWORK6}:{number}"
        self.initiator = f"iqn.2026-11.com.example:{name}"

    def start(self) -> None:
        """Boot it; it answers some time later."""
        given = (self.name, self.initiator, self.address, self.address6)
        self.boot(["--bare"], [AGENT, *BORROW, "tests/cluster/become_host", *given])

    def sh(self, script: str) -> str:
        """Run a script of the shell, which must succeed; its output."""
        return self.must("sh", "-ec", script)

    def put(self, path: str, text: str) -> None:
        """Write a file of it, also below folders that do not exist."""
        words = ("sh", "-ec", 'mkdir -p "$(dirname "$0")"; printf %s "$1" >"$0"')
        self.must(*words, path, text)


class Cluster:
    """Its guests, and the node's own command line."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self.node = QuickGuest("node", f"{NETWORK}.11", directory)
        self.node6 = f"{NETWORK6}:11"
        self.hosts = {
            name: Host(name, number, directory)
            for number, name in enumerate(HOSTS, start=21)
        }
        self.diskless = {name: n for n, name in enumerate(DISKLESS, start=31)}

    def __enter__(self) -> Cluster:
        guests = (self.node, *self.hosts.values())
        with self._stack, step("start a storage node and three hosts"):
            names = [*(each.name for each in guests), *self.diskless]
            build_network("cluster", f"{NETWORK}.1", names)
            for guest in guests:
                self._stack.callback(guest.kill)
            self.node.boot(
                [], ["tests/cluster/become_node", self.node.address, self.node6]
            )
            for host in self.hosts.values():
                host.start()
            for guest in guests:
                until(guest.answers, f"{guest.name} answers", _BOOT_SECONDS)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def access(self) -> Access:
        """The API as a cluster's fencing calls it."""
        return Access(
            f"https://{self.node.address}:8776/v3",
            "cluster",
            "cluster-password",
            "/etc/lunshare-node.pem",
            self.node.must("cat", "/etc/lunshare/cert.pem"),
        )

    def lunshare(self, *words: str) -> str:
        """Run the command on the node; its output."""
        return self.node.must("lunshare", *words)

    def digest(self, volume_id: str) -> str:
        """The hash of a volume's disk, read on the node."""
        return self.node.must("sha256sum", f"/dev/lunshare/volume-{volume_id}")

    def share(self, name: str, size: int, **modes: Iterable[str]) -> Volume:
        """Create a volume of ``size`` GiB and give it to these hosts: rw, ro."""
        words = ["share", str(size), "--name", name]
        for mode, hosts in modes.items():
            for host in map(self.hosts.__getitem__, hosts):
                given = f"{host.name}={host.initiator}@{host.address}"
                words += [f"--{mode}", given]
        return Volume(self, self.lunshare(*words))


class Volume:
    """A volume, as ``lunshare share`` has printed it."""

    def __init__(self, cluster: Cluster, printed: str) -> None:
        self._cluster = cluster
        rows = [line.split() for line in printed.splitlines()[1:] if line]
        self.attachments = {
            row[1]: row[-1] for row in rows if len(row) > 1 and row[1] in HOSTS
        }
        self.id = rows[0][0]

    def config(self, host: str, form: str) -> str:
        """What ``lunshare consumer-config`` prints for a host."""
        words = ("consumer-config", self.attachments[host], "--format", form)
        return self._cluster.lunshare(*words)

    def login(self, host: str) -> str:
        """Log a host in by the printed lines, at every portal; the path of its disk."""
        machine = self._cluster.hosts[host]
        machine.sh(self.config(host, "iscsiadm"))
        device = self.config(host, "fstab").splitlines()[-1].split()[0]
        until(lambda: machine.ask("run", ["test", "-b", device])[0] == 0, device)
        return device

    def leave(self, host: str) -> None:
        """Log a host out of all, and end its attachment."""
        self._cluster.hosts[host].must("iscsiadm", "-m", "node", "-u")
        self._cluster.lunshare("detach", self.id, host)
