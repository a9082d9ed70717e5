# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare connect`` and ``disconnect``: this host uses a volume of a node.

An attachment and a login are one command, and nothing half-made stays: a login that
fails ends the attachment, and a disk that is in use keeps both.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any
from urllib.parse import urlencode

from lunshare.agent.cli.client import NodeClient, Refused
from lunshare.agent.cli.commands import Result, volume_id
from lunshare.agent.cli.table import table
from lunshare.host.initiator import Initiator, InitiatorError, session_user

_ISCSI = "iscsi"


def describe(
    connect: argparse.ArgumentParser, disconnect: argparse.ArgumentParser
) -> None:
    """Add the arguments of both."""
    for parser in (connect, disconnect):
        parser.add_argument("volume", metavar="VOLUME", help="id or name")
        parser.add_argument(
            "--multipath", action="store_true", help="use every portal, by multipathd"
        )
    connect.add_argument(
        "--mode", choices=("rw", "ro"), help="default: what the volume allows, rw"
    )
    disconnect.add_argument(
        "--attachment", metavar="ID", help="if this host has no session any more"
    )


def connect(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Attach a volume to this host and log in; print the path of its disk."""
    initiator = Initiator(arguments.multipath)
    body = {
        "volume_uuid": volume_id(node, arguments.volume),
        "connector": initiator.properties(node.local_address()),
    }
    if arguments.mode:
        body["mode"] = arguments.mode
    attachment = node.post("/attachments", {"attachment": body})["attachment"]
    path = ""
    try:
        path = initiator.connect(_connection(attachment))
        node.post(f"/attachments/{attachment['id']}/action", {"os-complete": None})
    except BaseException:
        _undo(node, initiator, attachment, path)
        raise
    return _result(attachment, path)


def disconnect(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Flush and remove the disk of a volume, log out, and end the attachment."""
    initiator = Initiator(arguments.multipath)
    volume = volume_id(node, arguments.volume)
    attachment = _attachment_of_this_host(node, volume, arguments.attachment)
    initiator.disconnect(_connection(attachment))
    node.delete(f"/attachments/{attachment['id']}")
    return _result(attachment, "")


def _connection(attachment: dict[str, Any]) -> dict[str, Any]:
    """Return what os-brick logs in with.

    :raises InitiatorError: the volume is not exported over iSCSI.
    """
    connection: dict[str, Any] = attachment["connection_info"]
    protocol = connection.get("driver_volume_type")
    if protocol != _ISCSI:
        raise InitiatorError(
            f"volume {attachment['volume_id']} is exported by {protocol}, not by iSCSI:"
            " use its connection_info by hand"
        )
    return connection


def _attachment_of_this_host(
    node: NodeClient, volume: str, attachment: str | None
) -> dict[str, Any]:
    """Return the attachment whose CHAP user this host's session has.

    :raises Refused: this host has no session to the volume's target.
    """
    query = urlencode({"volume_id": volume, "all_tenants": 1})
    rows = node.get(f"/attachments?{query}")["attachments"]
    for row in rows:
        shown: dict[str, Any] = node.get(f"/attachments/{row['id']}")["attachment"]
        connection = shown["connection_info"]
        user = connection.get("auth_username")
        target = connection.get("target_iqn")
        if row["id"] == attachment or (
            not attachment and user and session_user(target) == user
        ):
            return shown
    names = ", ".join(row["id"] for row in rows)
    raise Refused(
        f"this host is not logged in to volume {volume}; give --attachment, one of:"
        f" {names}"
        if rows
        else f"volume {volume} has no attachment"
    )


def _undo(
    node: NodeClient, initiator: Initiator, attachment: dict[str, Any], path: str
) -> None:
    """End what ``connect`` has begun. What fails here hides no first error."""
    with contextlib.suppress(Exception):
        if path:
            initiator.disconnect(_connection(attachment))
    with contextlib.suppress(Exception):
        node.delete(f"/attachments/{attachment['id']}")


def _result(attachment: dict[str, Any], path: str) -> Result:
    mode = attachment["attach_mode"]
    answer = {
        "attachment_id": attachment["id"],
        "volume_id": attachment["volume_id"],
        "mode": mode,
        "path": path or None,
    }
    head = ("VOLUME", "MODE", "ATTACHMENT", "PATH")
    row = [attachment["volume_id"], mode, attachment["id"], path or "-"]
    return Result(answer, table(head, [row]))
