# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The live target as configfs shows it, read without the project's code.

Also what an administrator may change in it by hand.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

TARGET = Path("/sys/kernel/config/target")
ISCSI, CORE = TARGET / "iscsi", TARGET / "core"
PREFIX = "iqn.2026-11.io.lunshare:volume-"
_SESSION = re.compile(r"LIO Session ID: (\d+)")
_MODES = {"0": "rw", "1": "ro"}
_LEFT_EMPTY = "(kept: sessions)"
_FAULT = re.compile(
    r"WARNING: |BUG: |Oops|Call Trace|blocked for more than|refcount_t|corruption"
    r"|general protection|lockup|page allocation failure|Out of memory|UBSAN"
)


class Live:
    """The target of one volume."""

    def __init__(self, volume: str) -> None:
        self.volume, self.iqn = volume, PREFIX + volume
        self.path = ISCSI / self.iqn
        self.group = self.path / "tpgt_1"

    @property
    def gone(self) -> bool:
        """Whether neither target nor backstore exists."""
        return not self.path.exists() and not self.backstores()

    @property
    def enabled(self) -> bool:
        """Whether hosts can log in."""
        enable = self.group / "enable"
        return enable.exists() and enable.read_text().strip() == "1"

    def backstores(self) -> list[Path]:
        """The volume's backstores: for writers and for readers.

        Not ``Path.glob``, which fails in Python 3.11 when another volume's HBA is
        removed meanwhile.
        """
        found = map(Path, glob.glob(f"{CORE}/*/volume-{self.volume}*"))
        return sorted(found, key=lambda entry: entry.name)

    @property
    def unmaps(self) -> int:
        """How many blocks one UNMAP may have."""
        path, *_ = self.backstores()
        return int((path / "attrib/max_unmap_lba_count").read_text())

    def acl(self, initiator: str) -> Path:
        """The directory of an initiator's ACL."""
        return self.group / "acls" / initiator

    def modes(self) -> dict[str, str | None]:
        """Initiator to mode; None where no LUN is mapped.

        Without the empty ACLs of hosts that were detached: a full apply removes these
        (docs/decisions/0049).
        """
        with contextlib.suppress(FileNotFoundError):
            names = sorted(os.listdir(self.group / "acls"))
            modes = {name: self._mode(name) for name in names}
            return {
                name: m for name, m in modes.items() if m or not self._is_left(name)
            }
        return {}

    def identity(self, initiator: str) -> tuple[int, int, str | None]:
        """Changes when an ACL or a mapped LUN is created again, or a session ends."""
        acl = self.acl(initiator)
        return (
            acl.stat().st_ino,
            (acl / "lun_0").stat().st_ino,
            self.session(initiator),
        )

    def session(self, initiator: str) -> str | None:
        """The kernel's number of the live session; it is never reused."""
        return _session(self.acl(initiator))

    def received(self, initiator: str) -> int:
        """How many bytes of a host's writes its session has received."""
        session = self.acl(initiator) / "fabric_statistics/iscsi_sess_stats"
        return int((session / "rxdata_octs").read_text())

    def protect(self, initiator: str, value: str) -> None:
        """Set the write protection of a mapped LUN by hand."""
        (self.acl(initiator) / "lun_0/write_protect").write_text(value)

    def intrude(self, initiator: str) -> None:
        """Create an ACL by hand that allows writes without a password."""
        acl = self.acl(initiator)
        (acl / "lun_0").mkdir(parents=True)
        (acl / "lun_0/link").symlink_to(self.group / "lun/lun_0")
        (acl / "lun_0/write_protect").write_text("0")
        (acl / "attrib/authentication").write_text("0")

    def wipe(self) -> None:
        """Remove everything by hand, sessions and backstore too."""
        stores = self.backstores()
        (self.group / "enable").write_text("0")
        dismantle(self.path)
        for store in stores:
            store.rmdir()
            store.parent.rmdir()

    def _is_left(self, initiator: str) -> bool:
        """Whether it is an empty ACL that stays until the next full apply."""
        with contextlib.suppress(OSError):
            return (self.acl(initiator) / "tag").read_text().strip() == _LEFT_EMPTY
        return False

    def _mode(self, initiator: str) -> str | None:
        with contextlib.suppress(OSError):
            text = (self.acl(initiator) / "lun_0/write_protect").read_text()
            return _MODES.get(text.strip())
        return None


def exported_volumes() -> set[str]:
    """The volumes that lunshare exports."""
    found = os.listdir(ISCSI) if ISCSI.exists() else []
    return {name.removeprefix(PREFIX) for name in found if name.startswith(PREFIX)}


def dismantle(target: Path) -> None:
    """Remove a target that is not in use, leaves first."""
    for group in target.glob("tpgt_*"):
        for acl in (group / "acls").iterdir():
            for mapping in acl.glob("lun_*"):
                _unlink(mapping)
                mapping.rmdir()
            acl.rmdir()
        for portal in (group / "np").iterdir():
            portal.rmdir()
        for lun in (group / "lun").iterdir():
            _unlink(lun)
            lun.rmdir()
        group.rmdir()
    target.rmdir()


def faults() -> Iterator[str]:
    """What the kernel's log says of faults from now on, and whether it is tainted."""
    file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(file, 0, os.SEEK_END)
    tainted, found = Path("/proc/sys/kernel/tainted"), ""
    clean = tainted.read_text()
    while True:
        with contextlib.suppress(BlockingIOError):
            while True:
                with contextlib.suppress(BrokenPipeError):  # older lines are lost
                    line = os.read(file, 8192).decode(errors="replace")
                    found += line if found or _FAULT.search(line) else ""
        yield found[:9000] + ("" if tainted.read_text() == clean else "tainted")


class Foreign:
    """A foreign target, on its own portal."""

    def __init__(self, portal: str = "127.0.0.1:3261") -> None:
        self.iqn, self.portal = "iqn.2003-01.com.example:foreign", portal
        self.initiator = "iqn.1994-05.com.example:foreign"
        self.path = ISCSI / self.iqn
        self.store = CORE / "rd_mcp_7/foreign"
        self._make()

    @property
    def info(self) -> dict[str, str]:
        """How to log in."""
        return {"target_iqn": self.iqn, "target_portal": self.portal}

    def tree(self) -> dict[str, object]:
        """All its readable attributes, except counters of I/O."""
        (acl,) = (self.path / "tpgt_1/acls").iterdir()
        session = {"session": _session(acl)}
        return dict(_seen(self.path)) | dict(_seen(self.store)) | session

    def remove(self) -> None:
        """Remove all of it."""
        (self.path / "tpgt_1/enable").write_text("0")
        dismantle(self.path)
        self.store.rmdir()
        self.store.parent.rmdir()

    def _make(self) -> None:
        self.store.mkdir(parents=True)
        (self.store / "control").write_text("rd_pages=64")
        (self.store / "enable").write_text("1")
        group, acl = self.path / "tpgt_1", self.path / "tpgt_1/acls" / self.initiator
        (group / "lun/lun_0").mkdir(parents=True)
        (group / "lun/lun_0/disk").symlink_to(self.store)
        (group / "np" / self.portal).mkdir()
        (group / "attrib/authentication").write_text("0")
        (acl / "lun_0").mkdir(parents=True)
        (acl / "lun_0/disk").symlink_to(group / "lun/lun_0")
        (acl / "lun_0/write_protect").write_text("0")
        (group / "enable").write_text("1")


def _session(acl: Path) -> str | None:
    found = _SESSION.search((acl / "info").read_text())
    return found[1] if found else None


def _unlink(directory: Path) -> None:
    for each in directory.iterdir():
        if each.is_symlink():
            each.unlink()


def _seen(top: Path) -> Iterator[tuple[str, object]]:
    for directory, folders, files in os.walk(top):
        folders[:] = [each for each in folders if not each.endswith("statistics")]
        yield directory, os.stat(directory).st_ino
        for name in set(files) - {"info"}:  # counts the session's commands
            path = f"{directory}/{name}"
            with contextlib.suppress(OSError):  # write-only ones
                yield path, Path(path).read_text()
