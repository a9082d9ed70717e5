# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A target as Cinder's LVM driver creates it, in directories in place of configfs.

Of the kernel's part there is the removal of an object with its attributes. A new object
has none, so a test sees only the first step of a creation; ``create_attributes`` adds
those that a complete attach and detach use.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from lunshare.helper import disk_paths

PREFIX = "iqn.2010-10.org.openstack:"
_TOPS = {"ROOT": "", "CORE": "/core", "ISCSI": "/iscsi"}
#: Attributes of a portal group.
OF_GROUPS = (
    "attrib/generate_node_acls",
    "attrib/demo_mode_discovery",
    "attrib/demo_mode_write_protect",
    "attrib/prod_mode_write_protect",
    "attrib/cache_dynamic_acls",
    "attrib/authentication",
    "param/ImmediateData",
    "param/DefaultTime2Retain",
)
_OF_BACKSTORES = (
    "emulate_3pc",
    "emulate_pr",
    "emulate_caw",
    "emulate_tpu",
    "emulate_tpws",
)
_IDLE = "No active iSCSI Session for Initiator Endpoint"
#: What the kernel creates in a new object, by the pattern of its path.
_NEW = {
    r"core/[^/]+/[^/]+": (
        *(f"attrib/{name}" for name in _OF_BACKSTORES),
        *("attrib/max_write_same_len", "alias", "control", "udev_path"),
        *(f"alua/default_tg_pt_gp/alua_access_{name}" for name in ("type", "state")),
        *("wwn/vendor_id", "wwn/product_id", "wwn/vpd_unit_serial"),
    ),
    r"iscsi/[^/]+/tpgt_1": (
        *(*OF_GROUPS, "enable", "dynamic_sessions", "lun/", "np/", "acls/"),
    ),
    r"iscsi/[^/]+/tpgt_1/acls/[^/]+": (
        *("tag", "attrib/authentication", "auth/userid", "auth/password"),
        "attrib/dataout_timeout",
    ),
    r"iscsi/[^/]+/tpgt_1/acls/[^/]+/lun_0": ("write_protect",),
}


class Tree:
    """The directory of configfs, and device-mapper's names of devices."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._patch, self._group = root, monkeypatch, ""
        self.mapped: dict[str, str] = {}  # the name of each device in device-mapper
        self._devices: dict[str, str] = {}  # the numbers of each path below /dev
        for name, module in list(sys.modules.items()):
            if name.startswith("lunshare.helper.lio."):
                for constant in _TOPS.keys() & vars(module).keys():
                    path = str(root) + _TOPS[constant]
                    monkeypatch.setattr(module, constant, path)
        (root / "core").mkdir(parents=True)
        (root / "iscsi").mkdir()
        for attribute in ("lio_version", "cpus_allowed_list"):
            (root / "iscsi" / attribute).touch()
        (root / "dbroot").write_text(str(root))
        monkeypatch.setattr(disk_paths, "open", self._open, raising=False)
        self._real_stat = os.stat
        monkeypatch.setattr(os, "stat", self._stat)
        self._real_rmdir = os.rmdir
        monkeypatch.setattr(os, "rmdir", self._rmdir)

    def create_attributes(self, group: str) -> None:
        """Create in each new object what the kernel creates in it.

        Every path of a volume in the group is a device then.
        """
        self._group = group
        self._real_mkdir, self._real_symlink = os.mkdir, os.symlink
        self._patch.setattr(os, "mkdir", self._mkdir)
        self._patch.setattr(os, "symlink", self._symlink)

    def _mkdir(self, path: Any, *more: Any, **named: Any) -> None:
        self._real_mkdir(path, *more, **named)
        if not str(path).startswith(f"{self.root}/"):
            return
        place = str(Path(path).relative_to(self.root))
        for pattern, attributes in _NEW.items():
            if re.fullmatch(pattern, place):
                for name in attributes:
                    self._attribute(Path(path), name)
        if re.fullmatch(r"core/[^/]+/[^/]+", place):
            _write(Path(path), "enable", "0")
            major, minor = self._device(f"/dev/{self._group}/{Path(path).name}")
            _write(Path(path), "info", f"Major: {major} Minor: {minor} CLAIMED: IBLOCK")
        if re.fullmatch(r"iscsi/[^/]+/tpgt_1/acls/[^/]+", place):
            _write(Path(path), "info", _IDLE)
            _write(Path(path), "cmdsn_depth", "64")

    def _attribute(self, path: Path, name: str) -> None:
        if name.endswith("/"):
            self._real_mkdir(path / name)
            return
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("0" if name.startswith("attrib/") else "")

    def _symlink(self, source: Any, link_: Any) -> None:
        """Link a LUN; a LUN that is mapped to a host is read-only at first."""
        self._real_symlink(source, link_)
        if protect := next(Path(link_).parent.glob("write_protect"), None):
            protect.write_text("1")

    def _device(self, path: str) -> list[str]:
        """The numbers of a volume's device, new ones for a new path."""
        if path not in self._devices:
            device = self._devices[path] = f"253:{len(self._devices) + 1}"
            words = path.removeprefix("/dev/").split("/")
            self.mapped[device] = "-".join(word.replace("-", "--") for word in words)
        return self._devices[path].split(":")

    def backstore(self, hba: str, name: str, device: str, group: str) -> Path:
        """A backstore that has the disk of a volume of that name open."""
        path = self.root / "core" / hba / name
        volume = name[name.index("volume-") :].removesuffix("-readers")
        words = (group, volume)
        self.mapped[device] = "-".join(each.replace("-", "--") for each in words)
        self._devices[f"/dev/{group}/{volume}"] = device
        _write(path, "udev_path", f"/dev/{group}/{volume}")
        _write(path, "alias", "")
        _write(path, "enable", "1")
        _write(path, "wwn/vpd_unit_serial", "T10 VPD Unit Serial Number: of-cinder")
        for attribute in _OF_BACKSTORES:
            _write(path, f"attrib/{attribute}", "1")
        _write(path, "alua/default_tg_pt_gp/alua_access_type", "Implicit")
        _write(path, "alua/default_tg_pt_gp/alua_access_state", "0")
        numbers = "Major: {} Minor: {}  CLAIMED: IBLOCK\n".format(*device.split(":"))
        _write(path, "info", f"Status: ACTIVATED\n        {numbers}")
        return path

    def target(self, volume_id: str, *initiators: str) -> Path:
        """A target without a LUN; returns its portal group."""
        group = self.root / "iscsi" / f"{PREFIX}volume-{volume_id}" / "tpgt_1"
        _write(group, "enable", "1")
        for attribute in OF_GROUPS:
            _write(group, attribute, "0")
        _write(group, "dynamic_sessions", "")
        (group / "lun").mkdir()
        (group / "np").mkdir()
        for each in initiators:
            _write(group, f"acls/{each}/info", _IDLE)
            _write(group, f"acls/{each}/tag", "")
            _write(group, f"acls/{each}/cmdsn_depth", "63")
            _write(group, f"acls/{each}/lun_0/write_protect", "0")
            _write(group, f"acls/{each}/attrib/authentication", "0")
            _write(group, f"acls/{each}/attrib/dataout_timeout", "3")
            os.symlink(group / "lun/lun_0", group / f"acls/{each}/lun_0/9c1b")
        return group

    def objects(self) -> list[Path]:
        """All targets and backstores."""
        targets = filter(Path.is_dir, self.root.glob("iscsi/*"))
        return sorted([*targets, *self.root.glob("core/*/*")])

    def snapshot(self) -> dict[str, str]:
        """All files with what they have, all links, all directories."""
        found = sorted(self.root.rglob("*"))
        return {str(path.relative_to(self.root)): _content(path) for path in found}

    def _stat(self, path: Any, *more: Any, **named: Any) -> os.stat_result:
        if self._group and str(path).startswith(f"/dev/{self._group}/volume-"):
            self._device(str(path))
        device = self._devices.get(str(path))
        if device is None:
            return self._real_stat(path, *more, **named)
        number = os.makedev(*map(int, device.split(":")))
        words = {"st_rdev": number}
        return os.stat_result([stat.S_IFBLK | 0o600, *[0] * 9], words)

    def _rmdir(self, path: str, **named: Any) -> None:
        """Remove an object, but not what was created in it, and nothing linked."""
        if not str(path).startswith(f"{self.root}/") or named:
            self._real_rmdir(path, **named)
            return
        linked = {
            os.readlink(each) for each in self.root.rglob("*") if each.is_symlink()
        }
        if path in linked:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        if any(_is_made(each) for each in Path(path).rglob("*")):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        shutil.rmtree(path)

    def _open(self, path: str, *more: Any, **named: Any) -> Any:
        found = [self.mapped.get(part) for part in Path(path).parts]
        if path.startswith("/sys/dev/block/"):
            return io.StringIO("".join(filter(None, found)) + "\n")
        return open(path, *more, **named)


def link(group: Path, backstore: Path, lun: str = "lun_0", name: str = "0a5e") -> None:
    """Link a LUN; rtslib chooses a random name."""
    _write(group / "lun" / lun, "alua_tg_pt_offline", "0")
    os.symlink(backstore, group / "lun" / lun / name)


def _write(top: Path, name: str, text: str) -> None:
    (top / name).parent.mkdir(parents=True, exist_ok=True)
    (top / name).write_text(text)


def _is_made(path: Path) -> bool:
    """Whether it is no attribute and no default group of its parent."""
    made = path.name.startswith(("lun_", "tpgt_")) or "volume-" in path.name
    return path.is_symlink() or made or path.parent.name in ("acls", "np")


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    return path.read_text() if path.is_file() else "directory"
