# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A freshly booted node with its volume group, saved as memory and disks.

Under TCG a boot uses 20 to 40 s of both cores, resuming this state 2 s of one. Every
run starts from it. After --reboot and --cut the run's disks boot for real.
"""

from functools import partial
from pathlib import Path

from tests.lab import cache, guest, qemu
from tests.lab.guest import Guest, Parts
from tests.lab.steps import sh, step

HERE = Path(__file__).resolve().parent


def node(system: Path, disk: Path, how: list[str]) -> Path:
    """An entry with disk0.qcow2, disk1.qcow2 and state."""
    machine = [*guest.MACHINE, guest.KERNEL_LINE, *how, qemu.version(how[:1])]
    inputs = [str(system), str(disk), (HERE / "prepare").read_text(), *machine]
    kind = system.name.rpartition("-")[0].replace("system", "node")
    return cache.entry(kind, inputs, partial(_build, system, disk, how))


def overlay(disk: Path, new: Path) -> Path:
    """A disk that starts as `disk` and writes to `new`."""
    kind = disk.suffix.removeprefix(".")
    sh(["qemu-img", "create", "-q", "-f", "qcow2", "-b", disk, "-F", kind, new])
    return new


def disks(entry: Path) -> list[Path]:
    """The disks of a saved node: vda and vdb."""
    return [entry / "disk0.qcow2", entry / "disk1.qcow2"]


def _build(system: Path, disk: Path, how: list[str], out: Path) -> None:
    new = [overlay(system / "disk.raw", disks(out)[0]), overlay(disk, disks(out)[1])]
    # The devices of the shares must exist, as when the state is read again.
    parts = Parts(system, new, shares={"lab": out, "build": out}, qemu=how)
    machine = Guest(parts, out, outlives_us=False)
    version = (system / "version").read_text().strip()
    try:
        with step(f"boot the guest with kernel {version} (once)"):
            machine.boot()
        with step("create its volume group and save its state (once)"):
            machine.output((HERE / "prepare").read_text())
            machine.output("modprobe -a 9p 9pnet_virtio && sync")
            machine.monitor().save(out / "state")
    finally:
        machine.leave()
