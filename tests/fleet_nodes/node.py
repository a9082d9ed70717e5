# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One storage node: a quick guest of the lab, as the tests outside it see it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fleet_nodes import network
from tests.stands.quick_guest import QuickGuest

_BACKENDS = ("thin", "thick")
_NOT_DISKS = re.compile("lunshare-pool|deleted-")
# In the quick guest's kernel a process has up to 65,530 mappings of one page or more
# (vm.max_map_count of the host), and cinder-backup keeps as much as this in memory.
_BACKUPS = """\
backup_file_size = 33554432
backup_driver = cinder.backup.drivers.posix.PosixBackupDriver
backup_posix_path = /var/lib/cinder/backups
"""
_PREFIX = re.compile("volume-|_snapshot-")


class Node(QuickGuest):
    """A guest with cinder-volume, lunshare-helper, LVM and LIO, and hosts.

    ``lent``: a folder with lunshare's wheel, to which cinder.conf is added.
    ``cinder``: the venv in which pip installed Cinder.
    """

    def __init__(self, name: str, directory: Path, lent: Path, cinder: Path) -> None:
        super().__init__(name, network.NODES[name], directory)
        self._lent, self._cinder = lent, cinder

    def start(self, options: str, thin: str) -> None:
        """Boot it; it answers some time later.

        ``options``: of every cinder.conf. ``thin``: more of the thin backend.
        """
        (self._lent / "cinder.conf").write_text(self._config(options, thin))
        self.boot(
            ["--bare"],
            [
                *("python", "-m", "tests.lab.borrow"),
                *(
                    f"--files=/srv/cinder={self._cinder}",
                    f"--files=/srv/lent={self._lent}",
                ),
                *("--", "python", "-m", "tests.fleet_nodes.in_guest", self.address),
                f"/build/{self.name}.journal",
            ],
        )

    def exports(self) -> dict[str, dict[str, str]]:
        """The live target: the mode of each initiator, by volume."""
        return dict(self.ask("exports"))

    def disks(self) -> set[str]:
        """The ids of volumes and snapshots that have a disk here, and of parts of one.

        Of another disk its name; the pool and deleted disks to wipe do not count.
        """
        listed = self.must("lvs", "--noheadings", "-o", "lv_name", "lunshare")
        found = [name for name in listed.split() if not _NOT_DISKS.match(name)]
        return {_PREFIX.sub("", name) for name in found}

    def backends(self) -> list[str]:
        """Their hosts in Cinder."""
        return [f"{self.name}@{backend}" for backend in _BACKENDS]

    def _config(self, options: str, thin: str) -> str:
        driver = (
            "volume_driver = lunshare.cinder.LunshareDriver\nvolume_group = lunshare\n"
        )
        state = "/var/lib/cinder"
        return (
            f"{options}[DEFAULT]\nhost = {self.name}\nmy_ip = {self.address}\n"
            f"enabled_backends = {','.join(_BACKENDS)}\nstate_path = {state}\n"
            f"{_BACKUPS if self.name == network.BACKUPS else ''}"
            f"[thin]\n{driver}volume_backend_name = {self.name}-thin\n{thin}\n"
            f"[thick]\n{driver}volume_backend_name = {self.name}-thick\n"
            "lvm_type = default\n"
            f"[oslo_concurrency]\nlock_path = {state}/lock\n"
            f"[coordination]\nbackend_url = file://{state}/coordination\n"
        )
