# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/fleet.md, "From Cinder's LVM driver", and what the kernel shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.cinder_guest.node import OURS, PEER, Node
from tests.stands.waiting import until

#: The backend; its name and its driver line are all that an operator changes.
BACKEND = "lvm"
PREFIX = "iqn.2010-10.org.openstack:"
FOREIGN = "another program has created"
_ISCSI = Path("/sys/kernel/config/target/iscsi")
_CORE = Path("/sys/kernel/config/target/core")
_HELPER = Path("/etc/lunshare/helper.conf")
_SAVED = Path("/etc/target/saveconfig.json")
RTSLIB = "rtslib-fb-targetctl.service"
_SESSION = re.compile(r"LIO Session ID: (\d+)")


def take_over(node: Node, allowed: bool = True) -> None:
    """From Cinder's LVM driver to lunshare's. Not started yet.

    ``allowed``: whether the operator sets the switch in helper.conf.
    """
    node.stop_volume()
    restart_helper(f"target_prefix = {PREFIX}\n", allowed)
    _SAVED.rename(_SAVED.with_suffix(".before"))
    node.backends[BACKEND] = f"{OURS}target_prefix = {PREFIX}\n"
    node.configure()


def enable_unit_of_rtslib() -> None:
    """As its package does. The unit of the test does nothing when it starts."""
    lines = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    Path("/lib/systemd/system", RTSLIB).write_text(lines)
    for verb in ("unmask", "enable"):
        subprocess.run(["systemctl", "-q", verb, RTSLIB], check=True)


def mask_unit_of_rtslib() -> None:
    """As an operator does, who reads why the backend is down."""
    subprocess.run(["systemctl", "-q", "mask", RTSLIB], check=True)


def give_back(node: Node) -> None:
    """From lunshare's driver to Cinder's LVM driver. Not started yet."""
    node.stop_volume()
    socket = node.database.url.partition("unix_socket=")[2]
    words = ["mariadb", "--no-defaults", "-uroot", f"--socket={socket}", "cinder", "-e"]
    change = (
        "UPDATE volumes SET provider_auth = NULL WHERE provider_auth LIKE 'lunshare %'"
    )
    subprocess.run([*words, change], check=True)
    node.backends[BACKEND] = PEER
    node.configure()
    subprocess.run(["cinder-rtstool", "save"], check=True)


def restart_helper(lines: str, allowed: bool) -> None:
    """Write helper.conf with these lines; exports stay as they are."""
    kept = [
        line
        for line in _HELPER.read_text().splitlines()
        if not line.startswith(("target_prefix", "take_over"))
    ]
    switch = "take_over_cinder_targets = yes\n" if allowed else ""
    _HELPER.write_text("\n".join(kept) + f"\n{lines}{switch}")
    subprocess.run(["systemctl", "restart", "lunshare-helper"], check=True)


def start(node: Node, line: str) -> None:
    """Start cinder-volume, and wait for this new line in its log."""
    before = node.log.count(line)
    node.start_volume()
    until(lambda: node.log.count(line) > before, f"the log has {line!r}", 500)


def session(volume_id: str, initiator: str) -> str:
    """The number of a host's live session; empty without one."""
    info = _target(volume_id) / f"tpgt_1/acls/{initiator}/info"
    found = _SESSION.search(info.read_text())
    return found[1] if found else ""


def maps_readers_lun(volume_id: str, initiator: str) -> bool:
    """Whether a host has the LUN in which nothing can be changed."""
    mapped = _target(volume_id) / f"tpgt_1/acls/{initiator}/lun_0"
    links = [path for path in mapped.iterdir() if path.is_symlink()]
    return [link.readlink().name for link in links] == ["lun_1"]


def backstores(volume_id: str) -> list[str]:
    """The names of the backstores of a volume."""
    return sorted(path.name for path in _CORE.glob(f"*/*volume-{volume_id}*"))


def is_exported(volume_id: str) -> bool:
    """Whether the volume has a target."""
    return _target(volume_id).exists()


def _target(volume_id: str) -> Path:
    return _ISCSI / f"{PREFIX}volume-{volume_id}"
