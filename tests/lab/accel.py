# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the guest computes: KVM where it runs a stock kernel, else emulation (TCG).

That /dev/kvm can be opened says little: some clouds' nested KVM starts a guest that
never gets past its first instructions. So the kernel is tried, once per host boot.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.lab import cache, qemu
from tests.lab.steps import step

# A plain processor, for the kernel and libc use what they find and all of it is
# emulated: on "max" 30 LVM commands took 17 to 21 s, here 12 to 14.
TCG = ["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "Nehalem"]
KVM = ["-accel", "kvm", "-cpu", "host"]
PROBE_SECONDS = 5  # a kernel says its first word within one, where KVM works


def choose(system: Path) -> list[str]:
    """QEMU for this machine, with its options."""
    if _has_kvm(system):
        return [*qemu.OWN, *KVM]
    return [*qemu.command(), *TCG]


def _has_kvm(system: Path) -> bool:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    version = (system / "version").read_text()
    inputs = [boot, version, Path(__file__).read_text()]
    entry = cache.entry("accel", inputs, lambda out: _probe(system, out))
    return (entry / "kvm").exists()


def _probe(system: Path, out: Path) -> None:
    with step("try this machine's KVM (once)"):
        if _speaks(system):
            (out / "kvm").touch()


def _speaks(system: Path) -> bool:
    """Does the kernel reach its first console message?"""
    with tempfile.TemporaryDirectory() as directory:
        console = Path(directory, "console")
        console.touch()
        machine = ["-machine", "pc", "-m", "512", "-nodefaults", "-display", "none"]
        kernel = ["-kernel", f"{system}/vmlinux", "-append", "earlyprintk=serial"]
        argv = [*qemu.OWN, *KVM, *machine, "-no-reboot", *kernel]
        tried = subprocess.Popen(
            [*argv, "-serial", f"file:{console}"], stderr=subprocess.DEVNULL
        )
        try:
            return _said(console, tried)
        finally:
            tried.kill()
            tried.wait()


def _said(console: Path, tried: "subprocess.Popen[bytes]") -> bool:
    deadline = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < deadline and tried.poll() is None:
        if b"Linux version" in console.read_bytes():
            return True
        time.sleep(0.1)
    return b"Linux version" in console.read_bytes()
