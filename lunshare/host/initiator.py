# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""This host's own iSCSI initiator: os-brick, as Nova uses it, and the kernel's view.

os-brick calls ``iscsiadm`` and needs root. It is the extra ``initiator``.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from lunshare.host.disk_use import in_use_problem

#: Locks between processes: os-brick's, and one of ``connect`` and ``disconnect``.
_LOCKS = "/run/lock"
_SESSIONS = Path("/sys/class/iscsi_session")
_COMMANDS_SECONDS = 30.0  # a login to a portal that answers takes less
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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other ``connect`` or ``disconnect`` of this host run.

        They share sessions, and decide by what the other has finished.
        """
        from oslo_concurrency import lockutils  # noqa: PLC0415

        with lockutils.external_lock("lunshare-connect", lock_path=_LOCKS):
            yield

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


def wait_for_commands() -> None:
    """Wait for the commands of a login that was broken off, at most 30 seconds.

    One that still runs would log in after this program has ended.
    """
    psutil.wait_procs(psutil.Process().children(recursive=True), _COMMANDS_SECONDS)


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
