# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A storage node for tests: a real helper process, real disks, a real target."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from lunshare.drivers.helper_client import Helper
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import Auth, Connector, Disk, Export, Mode
from tests.system.lio_hosts import BLOCK, Session

GROUP = "mapped"
# Not the prefix of the installed daemon, whose exports these tests must not see.
PREFIX = "iqn.2026-11.io.lunshare.test:"
PORT = 3270
_SERVED = Path(__file__).with_name("helper.conf")
CONFIGFS = Path("/sys/kernel/config/target")
MIB = 1024**2
SIZE = 64 * MIB


class HelperProcess:
    """The root helper in a separate process, with its own socket."""

    def __init__(self, directory: Path, prefix: str = PREFIX) -> None:
        self.path, self.prefix = str(directory / "helper.sock"), prefix
        self._config = directory / "helper.conf"
        self._config.write_text(_SERVED.read_text().replace(PREFIX, prefix))
        self._filters = Path(__file__).parents[2] / "rootwrap.d"
        self._clients: list[Helper] = []
        self.start()

    def start(self) -> None:
        """Start it and wait for its READY=1."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with notify:
            name = f"lunshare-test-{uuid.uuid4()}"
            notify.bind("\0" + name)
            notify.settimeout(60)
            line = [
                sys.executable,
                "-m",
                "lunshare.helper.main",
                "--user",
                "root",
            ]
            line += ["--socket", self.path, "--filters", str(self._filters)]
            line += ["--config", str(self._config)]
            self._process = subprocess.Popen(
                line, env={**os.environ, "NOTIFY_SOCKET": "@" + name}
            )
            assert notify.recv(100) == b"READY=1"

    def client(self) -> Helper:
        """A new client; it is closed with the helper."""
        self._clients.append(Helper(self.path))
        return self._clients[-1]

    def calls(self) -> int:
        """How often it has read or written files and sockets."""
        used = psutil.Process(self._process.pid).io_counters()
        return int(used.read_count + used.write_count)

    def processor_seconds(self) -> float:
        """The processor time that it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def is_killed_last(self) -> None:
        """Let other programs be killed first for lack of memory, as its unit does."""
        process = Path("/proc", str(self._process.pid))
        (process / "oom_score_adj").write_text("-900")

    def kill(self) -> None:
        """kill -9. The process stays while one of its threads is in the kernel."""
        self._process.send_signal(signal.SIGKILL)
        self._forget()

    def abandon(self) -> None:
        """kill -9, where the kernel may never remove the process."""
        self.kill()
        self._process.returncode = -signal.SIGKILL  # else its object warns

    def wait(self) -> None:
        """Wait until the kernel has removed the killed process."""
        self._process.wait(60)

    def stop(self) -> None:
        """Stop it as systemd does."""
        self._process.terminate()
        self._process.wait(30)
        self._forget()

    def _forget(self) -> None:
        for client in self._clients:
            client.close()


def target(
    helper: HelperProcess,
    deadline: float = 20.0,
    address: str = "127.0.0.1",
    port: int = PORT,
) -> LioTarget:
    """The driver under test, with its default options except these."""
    options = {each.dest: each.default for each in LioTarget.OPTIONS}
    options |= {"lio_deadline": deadline, "target_prefix": helper.prefix}
    options |= {"target_ip_address": address, "target_port": port}
    return LioTarget("test", options, helper.client())


class Backing:
    """A loop device that holds the disks of one test module.

    They have names as LVM gives them. Creating one with dmsetup takes a tenth of the
    time of lvcreate.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / "backing"
        with self._file.open("wb") as file:
            file.truncate(64 * 1024 * MIB)
        self.loop = run("losetup", "--find", "--show", str(self._file)).strip()
        self._cut = 0

    def cut(self, name: str) -> str:
        """Create a disk of that name; returns its path."""
        sectors = SIZE // BLOCK
        table = f"0 {sectors} linear {self.loop} {self._cut}"
        self._cut += sectors
        run("dmsetup", "create", name, "--uuid", unscanned(), "--table", table)
        return f"/dev/mapper/{name}"

    def close(self) -> None:
        run("losetup", "-d", self.loop)
        self._file.unlink()


def unscanned() -> str:
    """A device-mapper uuid that makes LVM's commands ignore a device.

    Otherwise they search it for physical volumes, and wait while it hangs
    (dev_filter "usable" of lvm2 2.03.16).
    """
    return f"LVM-{uuid.uuid4().hex}{uuid.uuid4().hex}"


class Node:
    """One volume on the node, and what a test does with it."""

    def __init__(
        self, helper: HelperProcess, driver: LioTarget, backing: Backing
    ) -> None:
        self._begin(helper, driver)
        self._backing = backing
        self._mapped = f"{GROUP}-{self.name.replace('-', '--')}"
        self._devices = [self._mapped]
        self.disk = Disk(self.id, backing.cut(self._mapped), SIZE)

    #: Whether the type of the volume allows reservations.
    reservations = False

    def _begin(self, helper: HelperProcess, driver: LioTarget) -> None:
        self.id = str(uuid.uuid4())
        self.name = f"volume-{self.id}"
        self.helper, self.driver = helper, driver
        self.iqn = helper.prefix + self.name
        self.group = CONFIGFS / "iscsi" / self.iqn / "tpgt_1"
        self._sessions: list[Session] = []

    def close(self) -> None:
        """Remove everything."""
        self.resume()
        self._end()
        for device in self._devices:
            run("dmsetup", "remove", "--retry", device)

    def _end(self) -> None:
        for session in self._sessions:
            session.close()
        self.driver.remove(self.id)

    def remade(self) -> str:
        """Create the device again, with other blocks; LIO still has the old one."""
        old = f"{GROUP}-old--{uuid.uuid4().hex}"
        run("dmsetup", "rename", self._mapped, old)
        self._devices.append(old)
        return self._backing.cut(self._mapped)

    def added(self, name: str) -> str:
        """Create one more device, which is removed after the disk; its path."""
        self._devices.append(name)
        return self._backing.cut(name)

    def connector(self, host: str, mode: str, auth: Auth | None = None) -> Connector:
        return Connector(initiator(host), Mode(mode), f"attachment-{host}", auth)

    def export(self, **modes: str) -> Export:
        connectors = tuple(self.connector(k, m) for k, m in modes.items())
        return Export(self.id, self.disk, connectors, self.reservations)

    def apply(self, only: Iterable[str] | None = None, **modes: str) -> tuple[str, ...]:
        """``apply(a="rw", b="ro")``; ``only="ab"`` considers these hosts only."""
        scope = None if only is None else {initiator(host) for host in only}
        return self.driver.apply(self.export(**modes), only=scope)

    def login(
        self, host: str, auth: Auth | None = None, portal: str = f"127.0.0.1:{PORT}"
    ) -> Session:
        session = Session(initiator(host), self.iqn, portal, auth)
        self._sessions.append(session)
        return session

    def acl(self, host: str) -> Path:
        return self.group / "acls" / initiator(host)

    def backstore(self) -> Path:
        return (self.group / "lun/lun_0" / self.name).resolve()

    def backstores(self) -> list[Path]:
        """Its backstores: the writers', then the readers'."""
        found = CONFIGFS.glob(f"core/*/{self.name}*")
        return sorted(found, key=lambda entry: entry.name)

    def received(self, host: str) -> int:
        """How many bytes of the host's writes its session has received.

        A count of commands grows before the target asks for their data (R2T).
        """
        session = self.acl(host) / "fabric_statistics/iscsi_sess_stats"
        return int((session / "rxdata_octs").read_text())

    def live(self) -> dict[str, str | None]:
        """Host to mode, as observe() returns."""
        return {
            connector.initiator.rpartition("-")[2]: connector.mode
            for export in self.driver.observe()
            if export.volume_id == self.id
            for connector in export.connectors
        }

    def on_disk(self, block: int) -> bytes:
        """The block on the disk, read past the page cache."""
        skip = f"skip={block // 8}"
        line = [
            "dd",
            f"if={self.disk.path}",
            "bs=4096",
            "count=1",
            "iflag=direct",
            skip,
        ]
        data = subprocess.run(line, check=True, capture_output=True).stdout
        return data[block % 8 * BLOCK :][:BLOCK]

    def suspend(self) -> None:
        """Suspend the disk: its I/O hangs."""
        run("dmsetup", "suspend", "--noflush", "--nolockfs", self._mapped)

    def resume(self) -> None:
        run("dmsetup", "resume", self._mapped)


class Later:
    """A call that runs in a thread."""

    def __init__(self, call: Callable[..., object], *given: object) -> None:
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(call, *given))
        self._thread.daemon = True
        self._thread.start()

    def _run(self, call: Callable[..., object], *given: object) -> None:
        try:
            call(*given)
        except Exception as error:
            self.error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> Exception | None:
        """Wait for its end; returns its error."""
        self._thread.join(60)
        assert self.done
        return self.error


def initiator(host: str) -> str:
    return f"iqn.1994-05.com.example:host-{host}"


@functools.cache
def lvm_directory() -> str:
    """A copy of /etc/lvm without lvmlocal.conf, for the LVM commands of tests.

    A test of another lane in the same guest may be changing that file.
    """
    copy = Path(tempfile.mkdtemp(prefix="lunshare-tests-"), "lvm")
    ignored = shutil.ignore_patterns("lvmlocal.conf", "archive", "backup")
    shutil.copytree("/etc/lvm", copy, ignore=ignored)
    return str(copy)


def run(*argv: str) -> str:
    environment = {**os.environ, "LVM_SYSTEM_DIR": lvm_directory()}
    done = subprocess.run(
        argv, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


@contextlib.contextmanager
def hanging(node: Node) -> Iterator[None]:
    """The disk hangs inside the ``with`` block."""
    node.suspend()
    try:
        yield
    finally:
        node.resume()
