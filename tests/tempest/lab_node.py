# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The installed daemon of a lab's guest, with LVM and LIO, and Keystone's tokens."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.lab.steps import sh
from tests.stands.waiting import until
from tests.system.kernel import CORE, exported_volumes

BACKENDS = ("lvm", "lvm-thick")
GROUP, POOL = "lunshare", "lunshare-pool"
#: A thin volume can become thick only in another volume group (docs/operations.md).
THICK_GROUP = "lunshare-thick"

_FILE = Path("/etc/lunshare/lunshare.conf")
_PORT = 8776
_WIPE_SECONDS = 90
_UNITS = ("lunshared.service", "lunshare-helper.service")
_CONFIG = """
[DEFAULT]
auth_strategy = keystone
enabled_backends = lvm, lvm-thick
listen = 127.0.0.1:{port}
{keystone}
[lvm]
volume_driver = lvm
target_driver = lio
volume_group = {group}
initiator_networks = 127.0.0.0/8
[lvm-thick]
volume_driver = lvm
target_driver = lio
volume_group = {thick_group}
initiator_networks = 127.0.0.0/8
lvm_type = default
"""
_DISK = Path("/var/tmp/lunshare-thick.img")
_DISK_SIZE = "8G"


class LabNode:
    """lunshared.service, whose configuration is replaced; its journal is kept."""

    endpoint = f"http://127.0.0.1:{_PORT}/v3/$(project_id)s"

    def __init__(self, directory: Path, keystone: str) -> None:
        """``keystone``: the section for the Keystone that validates tokens."""
        self._log = directory / "lunshared.log"
        sh(["truncate", "-s", _DISK_SIZE, _DISK])
        loop = sh(["losetup", "--find", "--show", _DISK]).strip()
        sh(["vgcreate", "-qq", "--setautoactivation", "n", THICK_GROUP, loop])
        options = {"group": GROUP, "thick_group": THICK_GROUP, "keystone": keystone}
        _FILE.write_text(_CONFIG.format(port=_PORT, **options))

    def start(self) -> None:
        """Start it with this configuration; systemd waits until it listens."""
        sh(["systemctl", "restart", _UNITS[0]])

    def close(self) -> None:
        """Write its journal, and stop it."""
        units = [word for unit in _UNITS for word in ("-u", unit)]
        self._log.write_text(sh(["journalctl", "--boot", "--no-pager", *units]))
        sh(["systemctl", "stop", _UNITS[0]])

    def left(self) -> list[str]:
        """Disks other than the pool, exports, and backstores of the target."""
        with suppress(AssertionError):
            until(lambda: _disks() == [], "deleted disks are wiped", _WIPE_SECONDS)
        stores = [path.name for path in CORE.glob("*/volume-*")]
        return [*_disks(), *sorted(exported_volumes()), *sorted(stores)]


def _disks() -> list[str]:
    """The logical volumes, without the pool."""
    listed = ["lvs", "--noheadings", "-o", "lv_name", GROUP, THICK_GROUP]
    names = sh(listed).split()
    return [name for name in names if name != POOL]
