# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which system tests run one after the other, in one lane.

A stock kernel runs the lanes of ``STOCK`` beside each other in one guest. A quick guest
has one processor and often waits, so each lane of ``QUICK`` has its own guest.
``JUDGED`` runs again on Debian's own kernel in every run (tests/system/run).
"""

from __future__ import annotations

from pathlib import Path

from lunshare.drivers.conformance.volume import VolumeContract

HERE = Path(__file__).parent
STOCK = ("lvm", "node")
#: Lanes that start together; one with a comma starts when the one before it has ended.
CHAINS = ("thin-1,thin-2", "thick-1,thick-2", "node-1", "node-2", "target")
#: Each test is in exactly one of them: tests/unit/test_lanes.py.
QUICK = tuple(",".join(CHAINS).split(","))
#: The files of ``target``, beside all that begin with ``test_lio_``.
TARGET = (
    "test_hostile_storm",
    "test_kernel_initiator",
    "test_killed_writers",
    "test_reservations",
    "test_verify",
)
#: The files of ``node-2``. The other files of ``node`` are in ``node-1``.
NODE_2 = (
    "test_lvm_changes",
    "test_lvm_copies",
    "test_lvm_driver",
    "test_lvm_group",
    "test_lvm_managed_snapshots",
    "test_lvm_orphans",
    "test_nfs_and_lvm",
    "test_nfs_driver",
    "test_nfs_export",
    "test_nfs_lost_share",
)
#: The files of the conformance kit whose tests are in ``thin-2`` and ``thick-2``.
KIT_2 = ("failures", "killed_volume", "storage_errors")
#: The acceptance path, access and its end, read-only hosts, and the cost of an attach.
JUDGED = (
    "test_access",
    "test_attachments",
    "test_costs",
    "test_failed_attach",
    "test_hung_disk",
    "test_kernel_initiator",
    "test_lio_closing",
    "test_lio_killed",
    "test_portal_firewall",
)
#: User-mode Linux has no process connector, which counts the processes. And in 6.12.101
#: the daemon ends with SIGSEGV when the test reads its /proc/PID/mem (3 of 3; a small
#: program with threads does not, and the stock kernels have no such fault). And its
#: nf_tables has no tables of the family inet.
STOCK_ONLY = ("test_costs", "test_portal_firewall")
_AFTER = "test_after_"  # of a reboot and of a power cut: tests/system/run
#: What random PDUs leave in the kernel stays there (docs/decisions/0040).
_LAST = "test_lio_fuzz"
#: The kit on LVM takes longest. It has its own disks, helpers and names, so it can run
#: beside the tests of the installed node.
_KIT = HERE / "test_lvm_conformance.py"


def is_uml() -> bool:
    """Whether this kernel is User-mode Linux; see /proc/cpuinfo there."""
    return "User Mode Linux" in Path("/proc/cpuinfo").read_text()


def selected(lane: str) -> list[str]:
    """Return the tests of a lane, as arguments of pytest."""
    match lane:
        case "lvm":
            return [str(_KIT)]
        case "thin-1" | "thin-2" | "thick-1" | "thick-2":
            kind, _, part = lane.partition("-")
            found = (name for name, file in _kit() if (file in KIT_2) == (part == "2"))
            return [f"{_KIT}::Test{kind.title()}::{name}" for name in found]
        case "node-1" | "node-2" | "target":
            return [str(file) for file in _of_node() if _lane(file.stem) == lane]
        case "judged":
            return [str(file) for file in _of_node() if file.stem in JUDGED]
        case "node":
            return [str(file) for file in _of_node()]
    raise ValueError(f"lane {lane}: choose one of {', '.join((*STOCK, *QUICK))}")


def _lane(stem: str) -> str:
    """Which lane of the quick guests has this file of the installed node."""
    if stem in TARGET or stem.startswith("test_lio_"):
        return "target"
    return "node-2" if stem in NODE_2 else "node-1"


def _of_node() -> list[Path]:
    """The test files of the installed node on the kernel that runs."""
    found = [f for f in sorted(HERE.glob("test_*.py")) if not f.name.startswith(_AFTER)]
    others = {_KIT.stem, *(STOCK_ONLY if is_uml() else ())}
    found.sort(key=lambda file: file.stem == _LAST)
    return [file for file in found if file.stem not in others]


def _kit() -> list[tuple[str, str]]:
    """The names of the kit's tests, each with its file in the kit."""
    names = [name for name in dir(VolumeContract) if name.startswith("test_")]
    modules = [getattr(VolumeContract, name).__module__ for name in names]
    return [
        (name, module.rpartition(".")[2])
        for name, module in zip(names, modules, strict=True)
    ]
