# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One guest: a QEMU process with its own disks, controlled over ssh.

It boots or resumes from a saved state, runs commands, reboots, and loses its power.
"""

import contextlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.monitor import Monitor
from tests.lab.steps import LabError, last, say

BOOT_SECONDS = 240  # 20 on two idle cores under TCG; the machine may be busy
BOOTS = 3
STOP_SECONDS = 120
READY = b"lab: the guest is up"  # lab-ready.service prints it on the console
# Under TCG a halted processor may stay without its timer (QEMU 10.0, Linux 6.1,
# seen once, in a boot after a power cut). All that waits for it then waits for ever.
LOST = b"rcu_preempt kthread timer wakeup didn't happen"
UP_OR_LOST = re.compile(re.escape(READY) + b"|" + re.escape(LOST))
# Guests run nothing hostile, and without the mitigations a system call is far cheaper
# under TCG; so are processes without init_on_alloc. tsc=reliable: emulated processors
# share one clock, nothing to compare.
KERNEL_LINE = (
    "root=/dev/vda console=ttyS0 net.ifnames=0 quiet systemd.show_status=no panic=-1"
    " nokaslr mitigations=off tsc=reliable nowatchdog random.trust_cpu=on"
    " init_on_alloc=0"
)
SSH = [
    *("ssh", "-q", "-F", "none", "-o", "StrictHostKeyChecking=no"),
    *("-o", "UserKnownHostsFile=/dev/null", "-o", "ServerAliveInterval=60"),
]


@dataclass(frozen=True)
class Parts:
    """The parts of a guest."""

    system: Path  # an image: see image.py
    disks: Sequence[Path]  # qcow2, the guest's own: vda and vdb
    further: Sequence[Path] = ()  # additional disks, not in a saved state
    shares: dict[str, Path] = field(default_factory=dict)  # 9p mount tag -> folder
    qemu: Sequence[str] = ()  # the program, and its accelerator: see accel.py


class Guest:
    """A machine; `directory` holds its console and its log."""

    def __init__(self, parts: Parts, directory: Path, *, outlives_us: bool) -> None:
        self.parts = parts
        self.directory = directory
        self._outlives_us = outlives_us
        self._qemu: subprocess.Popen[bytes] | None = None
        self._monitor: Monitor | None = None
        self._port = 0
        # Not in the directory: a cache's path may be longer than the 108 bytes of
        # a unix socket's name (unix(7)), of which ssh takes 17 more for itself.
        self._sockets = Path(tempfile.mkdtemp(prefix="lab-"))

    def boot(self) -> None:
        """Start it, and return when systemd has started everything.

        A guest that loses its timer is switched off and on again.
        """
        for _ in range(BOOTS):
            if self._boots():
                self._port = self.monitor().forward_ssh()
                return
            say(
                "an emulated processor lost its timer; the guest is switched off and on"
            )
            self.kill()
        raise LabError(f"the guest hung {BOOTS} times\n{self.console()}")

    def wake(self, state: Path) -> None:
        """Resume from a saved state; the caller sets the guest's clock."""
        self._start(["-incoming", f"exec:cat '{state}'"])
        self._wait("wake", self.monitor().loaded)
        for disk in self.parts.further:
            self.monitor().plug(_drive(disk), disk.stem)
        self.monitor().ask("cont")
        self._port = self.monitor().forward_ssh()

    def reboot(self) -> None:
        """Shut down and start again: QEMU (-no-reboot) ends at the reboot."""
        self.output("systemctl start --no-block reboot.target")
        self._hang_up()
        try:
            self._process().wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            took = f"the guest did not shut down within {STOP_SECONDS} s"
            raise LabError(f"{took}\n{self.console()}") from None
        self.boot()

    def cut(self) -> None:
        """Cut its power, and boot the same disks."""
        self.kill()
        self.boot()

    def alive(self) -> bool:
        """Whether its QEMU runs."""
        return self._process().poll() is None

    def detach(self) -> tuple[str, str]:
        """Leave it running; returns the shell commands that enter and end it."""
        address = ["-i", str(self.parts.system / "key"), "-p", str(self._port)]
        enter = shlex.join([*SSH, *address, "root@127.0.0.1"])
        self._hang_up()
        directories = f"{self.directory} {self._sockets}"
        return enter, f"kill {self._process().pid} && rm -r {directories}"

    def kill(self) -> None:
        """Cut its power."""
        self._hang_up()
        if self._qemu:
            self._qemu.kill()
            self._qemu.wait()

    def leave(self) -> None:
        """Cut its power for good."""
        self.kill()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def call(self, command: str, *, tty: bool = False) -> int:
        """Run a shell command as root, with our stdin, stdout and stderr."""
        argv = [*self._ssh(), *(["-tt"] if tty else []), "--", "lab", command]
        return subprocess.run(argv, check=False).returncode

    def output(self, command: str) -> str:
        """The output of a command, which must succeed."""
        done = subprocess.run(
            [*self._ssh(), "--", "lab", command],
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise LabError(f"in the guest: {command}\n{last(done.stdout)}")
        return done.stdout

    def monitor(self) -> Monitor:
        """The connection to its QEMU."""
        if not self._monitor:
            raise LabError("the guest is not running")
        return self._monitor

    def console(self) -> str:
        """The last output of its console and of QEMU."""
        logs = [self.directory / "serial.log", self.directory / "qemu.log"]
        text = "".join(log.read_text(errors="replace") for log in logs if log.exists())
        return f"the end of the guest's console:\n{last(text)}"

    def _ssh(self) -> list[str]:
        key = str(self.parts.system / "key")
        path = f"{self._sockets}/ssh-%p"
        master = ["-o", "ControlMaster=auto", "-o", f"ControlPath={path}"]
        to = ["-o", "HostName=127.0.0.1", "-p", str(self._port), "-l", "root"]
        return [*SSH, *master, "-o", "ControlPersist=yes", *to, "-i", key]

    def _hang_up(self) -> None:
        if self._port:
            hang_up = [*self._ssh(), "-O", "exit", "lab"]
            subprocess.run(hang_up, check=False, capture_output=True)
        if self._monitor:
            self._monitor.close()
        self._monitor = None
        self._port = 0

    def _start(self, extra: Sequence[str]) -> None:
        serial, control = self.directory / "serial.log", self._sockets / "qmp"
        control.unlink(missing_ok=True)
        serial.write_bytes(b"")
        with open(self.directory / "qemu.log", "wb") as log:
            self._qemu = subprocess.Popen(
                [*self._command(), *extra],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process only
                close_fds=False,  # with cache.py's locks
            )
        self._wait("start", lambda: self._connect(control))

    def _connect(self, control: Path) -> Monitor | None:
        """Connect to QEMU, unless its socket is missing, or bound and not listening."""
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self._monitor = Monitor(control)
        return self._monitor

    def _wait(self, what: str, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while not done():
            if not self.alive():
                raise LabError(f"the guest ended, it did not {what}\n{self.console()}")
            if time.monotonic() > deadline:
                took = f"the guest did not {what} within {BOOT_SECONDS} s"
                raise LabError(f"{took}\n{self.console()}")
            time.sleep(0.05)

    def _boots(self) -> bool:
        """Start it; returns whether it boots without losing its timer."""
        self._start([word for disk in self.parts.further for word in _disk(disk)])
        serial = self.directory / "serial.log"
        self._wait("boot", lambda: UP_OR_LOST.search(serial.read_bytes()))
        return READY in serial.read_bytes()

    def _process(self) -> subprocess.Popen[bytes]:
        if not self._qemu:
            raise LabError("the guest is not running")
        return self._qemu

    def _command(self) -> list[str]:
        # With --keep the guest outlives this process; without it must not.
        tied = [] if self._outlives_us else ["setpriv", "--pdeathsig", "KILL", "--"]
        image, directory = self.parts.system, self.directory
        return [
            *(*tied, *self.parts.qemu, *MACHINE),
            *("-kernel", f"{image}/vmlinux", "-initrd", f"{image}/initrd"),
            *("-append", KERNEL_LINE, "-serial", f"file:{directory}/serial.log"),
            *("-qmp", f"unix:{self._sockets}/qmp,server=on,wait=off"),
            *(word for disk in self.parts.disks for word in _disk(disk)),
            *(word for tag in self.parts.shares.items() for word in _share(*tag)),
        ]


# restrict=on: the guest has no network except the port that the monitor opens.
MACHINE = [
    *("-machine", "pc", "-smp", "2", "-m", "3072", "-nodefaults", "-no-reboot"),
    *("-display", "none", "-netdev", "user,id=net,restrict=on"),
    *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
]


def _disk(path: Path) -> list[str]:
    return ["-drive", _drive(path), "-device", f"virtio-blk-pci,drive={path.stem}"]


def _drive(path: Path) -> str:
    # cache=unsafe: QEMU calls no fsync, yet a flush by the guest writes qcow2's own
    # tables to the host's page cache (bdrv_co_flush: flush_to_os comes before the check
    # of BDRV_O_NO_FLUSH), and that outlives kill -9. So what the guest fsynced survives
    # its power cut; only a crash of the host could lose it.
    return f"file={path},if=none,id={path.stem},cache=unsafe,discard=unmap"


def _share(tag: str, path: Path) -> list[str]:
    local = f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap"
    return ["-virtfs", local]
