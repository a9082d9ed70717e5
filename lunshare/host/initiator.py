# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""This host's own iSCSI initiator: os-brick, as Nova uses it, and the kernel's view.

os-brick calls ``iscsiadm`` and needs root. It is the extra ``initiator``.
"""

from __future__ import annotations

import errno
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

#: os-brick takes its locks between processes here.
_LOCKS = "/run/lock"
_SESSIONS = Path("/sys/class/iscsi_session")
_BLOCK_DEVICES = Path("/sys/class/block")
_SCANS = 5  # how often os-brick looks for the new disk, with growing pauses

#: The ``data`` of a connection, as the Block Storage API names its fields.
Connection = Mapping[str, Any]


class InitiatorError(Exception):
    """This host cannot do it. The text is a sentence for its administrator."""


class Initiator:
    """os-brick's connector of this host.

    :raises InitiatorError: os-brick is missing, or the caller is not root.
    """

    def __init__(self, multipath: bool = False) -> None:
        if os.geteuid() != 0:
            raise InitiatorError("a login to a target needs root: use sudo")
        self._multipath = multipath
        self._connector = _os_brick()

    def properties(self, address: str) -> dict[str, Any]:
        """Return the connector that the API expects of this host.

        :param address: of this host, on the way to the node.
        :raises InitiatorError: the host has no initiator name.
        """
        try:
            properties: dict[str, Any] = self._connector.get_connector_properties(
                None, address, self._multipath, enforce_multipath=self._multipath
            )
        except Exception as error:  # os-brick and oslo have no common base
            raise InitiatorError(
                f"os-brick cannot describe this host ({_line(error)}): install"
                " open-iscsi (and multipath-tools for --multipath)"
            ) from None
        if not properties.get("initiator"):
            raise InitiatorError(
                "this host has no initiator name: install open-iscsi, and see"
                " /etc/iscsi/initiatorname.iscsi"
            )
        return properties

    def connect(self, connection: Connection) -> str:
        """Log in, and return the path of the disk. After an error no session is left.

        :raises InitiatorError: with os-brick's reason.
        """
        try:
            return str(self._iscsi().connect_volume(dict(connection))["path"])
        except Exception as error:  # as above
            raise InitiatorError(
                f"the login to {connection['target_iqn']} failed ({_line(error)}):"
                f" check that this host reaches {connection['target_portal']}"
            ) from None

    def disconnect(self, connection: Connection) -> None:
        """Flush the disk, remove it, and log out.

        :raises InitiatorError: it is in use, or its last writes failed; it stays.
        """
        paths: list[str] = self._iscsi().get_volume_paths(dict(connection))
        for path in paths:
            if problem := in_use_problem(path):
                raise InitiatorError(problem)
        try:
            self._iscsi().disconnect_volume(dict(connection), None)
        except Exception as error:  # as above
            raise InitiatorError(
                f"the disk could not be removed ({_line(error)}): its writes may be"
                " lost; check the kernel's log, then try again"
            ) from None

    def _iscsi(self) -> Any:
        return self._connector.InitiatorConnector.factory(
            "ISCSI", None, use_multipath=self._multipath, device_scan_attempts=_SCANS
        )


def session_users(target: str | None) -> set[str]:
    """Return the CHAP users with which this host is logged in to a target."""
    users = (
        _text(session / "username")
        for session in _SESSIONS.glob("session*")
        if _text(session / "targetname") == target
    )
    return {user for user in users if user}


def in_use_problem(path: str) -> str:
    """Return why a disk must not be removed now, or "".

    A mount or a holder is named. Whatever else has it exclusively (swap, a mount of a
    container) is found by an exclusive open of each partition, open(2).
    """
    path = os.path.realpath(path)
    disk = os.path.basename(path)
    devices = {f"/dev/{name}" for name in _partitions(disk)}
    for mount in psutil.disk_partitions(all=True):
        if os.path.realpath(mount.device) in devices:
            return f"{path} is mounted on {mount.mountpoint}: unmount it first"
    for name in _partitions(disk):
        if holders := sorted(os.listdir(_BLOCK_DEVICES / name / "holders")):
            return f"{path} is used by {', '.join(holders)}: deactivate that first"
    for device in sorted(devices):
        if _is_exclusive(device):
            return f"{device} is in use, such as for swap: end that first"
    return ""


def _is_exclusive(device: str) -> bool:
    """Whether something has the device open for itself."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _partitions(disk: str) -> Iterator[str]:
    """Yield the kernel's names of a disk and its partitions."""
    if (_BLOCK_DEVICES / disk).exists():
        yield disk
        yield from (p.parent.name for p in _BLOCK_DEVICES.glob(f"{disk}/*/partition"))


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:  # the session has ended
        return None


def _line(error: Exception) -> str:
    """Return the text of an error of os-brick, which may have several lines."""
    return " ".join(str(error).split())


def _os_brick() -> Any:
    """Set os-brick up for a program that is root, and return its connectors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its dependencies
            import os_brick  # noqa: PLC0415
            from os_brick import privileged  # noqa: PLC0415
            from os_brick.initiator import connector  # noqa: PLC0415
            from oslo_concurrency import lockutils  # noqa: PLC0415
            from oslo_config import cfg  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InitiatorError(
            f"{error.name} is not installed: pip install 'lunshare[initiator]'"
        ) from None
    # Its warnings about NVMe and what else this host does not have.
    logging.getLogger().addHandler(logging.NullHandler())
    lockutils.set_defaults(_LOCKS)
    cfg.CONF([], project="lunshare")  # noqa: TID251  # os-brick reads the global one
    os_brick.setup(cfg.CONF)  # noqa: TID251
    privileged.default.set_client_mode(False)
    return connector
