# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One guest: a QEMU process on disks of its own, spoken to over ssh. Boots, runs commands, reboots, loses its power."""

import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steps import LabError, sh

BOOT_SECONDS = 180  # TCG on a busy two-core machine needs 25; a kernel that hangs needs a verdict
STOP_SECONDS = 120
MEMORY_MB = 3072
# Guests run the project's tests, nothing hostile: without the kernel's mitigations every system call is several times
# cheaper under TCG. tsc=reliable: emulated cores share one clock, so the kernel need not compare them.
KERNEL_LINE = ("root=/dev/vda console=ttyS0 net.ifnames=0 nokaslr mitigations=off tsc=reliable nowatchdog panic=-1 "
               "quiet systemd.show_status=no")


@dataclass(frozen=True)
class Parts:
    """What a guest is made of: the system image, further disks, folders it shares with the host, how it computes."""
    system: Path
    disks: Sequence[Path]
    shares: dict[str, Path]
    accel: Sequence[str]


class Guest:
    def __init__(self, parts: Parts, directory: Path, keep: bool = False) -> None:
        self._parts = parts
        self._directory = directory
        self._keep = keep
        self._port = 0
        self._qemu: subprocess.Popen[bytes] | None = None
        self._disks = [self._overlay(number, disk) for number, disk in enumerate([parts.system / "disk.raw", *parts.disks])]

    def boot(self) -> None:
        """Start QEMU and come back when the guest's sshd answers."""
        self._port = _free_port()
        with open(self._directory / "qemu.log", "ab") as log:
            self._qemu = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          start_new_session=True, close_fds=False)
        self._wait_for_ssh(time.monotonic() + BOOT_SECONDS)

    def call(self, command: str, tty: bool = False) -> int:
        """Run a shell command as root with our own stdin, stdout and stderr; its exit code."""
        return subprocess.run([*self.ssh(), *(["-tt"] if tty else []), "root@127.0.0.1", command], check=False).returncode

    def output(self, command: str) -> str:
        return sh([*self.ssh(), "root@127.0.0.1", command])

    def ssh(self) -> list[str]:
        return ["ssh", "-q", "-F", "none", "-i", str(self._parts.system / "key"), "-p", str(self._port),
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ServerAliveInterval=30",
                "-o", "ControlMaster=auto", "-o", f"ControlPath={self._directory}/ssh-%p", "-o", "ControlPersist=yes"]

    def reboot(self) -> None:
        """An orderly reboot: systemd stops everything, and QEMU (started with -no-reboot) ends where a machine would reset."""
        self.call("systemctl reboot")
        self._hang_up()
        try:
            self._process().wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise LabError(f"the guest did not shut down within {STOP_SECONDS} s\n{self.console()}") from None
        self.boot()

    def cut(self) -> None:
        """Cut the power and boot the same disks."""
        self.kill()
        self.boot()

    def kill(self) -> None:
        self._hang_up()
        if self._qemu:
            self._qemu.kill()
            self._qemu.wait()

    def alive(self) -> bool:
        return self._process().poll() is None

    def how_to_reach(self) -> str:
        reach = [word for word in self.ssh() if not word.startswith("-o")]
        words = [*self.ssh()[:6], *(word for pair in zip(self.ssh()[7::2], self.ssh()[8::2], strict=False) for word in pair)]
        del reach
        return (f"  enter: {shlex.join([*words, 'root@127.0.0.1'])}\n"
                f"  stop:  kill {self._process().pid} && rm -r {self._directory}")

    def console(self, lines: int = 40) -> str:
        text = "".join(path.read_text(errors="replace") for path in (self._directory / "serial.log", self._directory / "qemu.log")
                       if path.exists())
        return "the end of the guest's console:\n" + "\n".join(text.splitlines()[-lines:])

    def _process(self) -> subprocess.Popen[bytes]:
        if self._qemu is None:
            raise LabError("the guest was never started")
        return self._qemu

    def _hang_up(self) -> None:
        subprocess.run([*self.ssh(), "-O", "exit", "127.0.0.1"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _overlay(self, number: int, disk: Path) -> Path:
        overlay = self._directory / f"disk{number}.qcow2"
        sh(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(disk), "-F", "raw", str(overlay)])
        return overlay

    def _command(self) -> list[str]:
        image = self._parts.system
        # A --keep guest outlives us; any other must not, whatever ends us.
        tied = [] if self._keep else ["setpriv", "--pdeathsig", "KILL", "--"]
        line = [*tied, "qemu-system-x86_64", *self._parts.accel, "-machine", "pc", "-smp", "2", "-m", str(MEMORY_MB), "-nodefaults",
                "-display", "none", "-no-reboot", "-serial", f"file:{self._directory}/serial.log",
                "-kernel", str(image / "vmlinux"), "-initrd", str(image / "initrd"), "-append", KERNEL_LINE,
                "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22",
                "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]
        # cache=unsafe: QEMU does not fsync, but a flush of the guest still writes qcow2's own caches to the host's page cache
        # (bdrv_co_flush: flush_to_os comes before the BDRV_O_NO_FLUSH check), which outlives kill -9. So what the guest
        # fsynced survives a --cut, and only a crash of the host could lose it.
        for number, disk in enumerate(self._disks):
            line += ["-drive", f"file={disk},if=none,id=disk{number},cache=unsafe,discard=unmap,detect-zeroes=off",
                     "-device", f"virtio-blk-pci,drive=disk{number}"]
        for tag, path in self._parts.shares.items():
            line += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap"]
        return line

    def _wait_for_ssh(self, deadline: float) -> None:
        while not _greets(self._port):
            if not self.alive():
                raise LabError(f"QEMU ended with {self._process().returncode}\n{self.console()}")
            if time.monotonic() > deadline:
                raise LabError(f"the guest did not answer within {BOOT_SECONDS} s\n{self.console()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _greets(port: int) -> bool:
    """Has sshd said its first words? QEMU accepts connections long before the guest does, so this waits for a word."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.settimeout(1)
            return connection.recv(4) == b"SSH-"
    except TimeoutError:
        return False
    except OSError:
        time.sleep(0.2)  # refused: QEMU has not opened the port yet; ask again
        return False


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
