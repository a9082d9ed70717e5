# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare connect`` and ``disconnect``: this host uses a volume of a node.

An attachment and a login are one command, and nothing half-made stays: a login that
fails ends the attachment, and a disk that is in use keeps both.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from lunshare.agent.cli.client import NodeClient, Refused, Unreachable
from lunshare.agent.cli.commands import Result, volume_id
from lunshare.agent.cli.end_signals import EndSignals
from lunshare.agent.cli.table import table
from lunshare.host.initiator import (
    Initiator,
    InitiatorError,
    session_users,
    wait_for_commands,
)

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
        "--attachment",
        metavar="ATTACHMENT",
        help="its id, if this host has no session any more",
    )


def connect(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Attach a volume to this host, as root, and log in; print the path of its disk."""
    initiator = Initiator(arguments.multipath)
    signals = EndSignals()
    with initiator.locked(), signals.raised():
        return _connect(node, initiator, signals, arguments)


def _connect(
    node: NodeClient,
    initiator: Initiator,
    signals: EndSignals,
    arguments: argparse.Namespace,
) -> Result:
    body = {
        "volume_uuid": volume_id(node, arguments.volume),
        "connector": initiator.properties(node.local_address()),
    }
    if arguments.mode:
        body["mode"] = arguments.mode
    attachment, keeps_session = None, True
    try:
        with signals.held():
            attachment = node.post("/attachments", {"attachment": body})["attachment"]
        keeps_session = _is_logged_in(attachment)
        _refuse_old_session(attachment)
        path = initiator.connect(_connection(attachment))
        node.post(f"/attachments/{attachment['id']}/action", {"os-complete": None})
    except BaseException:
        if attachment:
            _undo(node, initiator, attachment, keeps_session)
        raise
    return _result(attachment, path)


def disconnect(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Flush and remove a volume's disk of this host, log out, and end the attachment.

    Attachments of one host share its session: it stays until the last of them ends.
    """
    initiator = Initiator(arguments.multipath)
    volume = volume_id(node, arguments.volume)
    with initiator.locked():
        rows = _attachments(node, volume)
        own = [row for row in rows if _is_logged_in(row)]
        attachment = _chosen(rows, own, arguments.attachment, volume)
        if own == [attachment]:
            initiator.disconnect(_connection(attachment))
        _end(node, attachment)
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


def _attachments(node: NodeClient, volume: str) -> list[dict[str, Any]]:
    """Return the attachments of a volume, each with its connection_info."""
    query = urlencode({"volume_id": volume, "all_tenants": 1})
    ids = [row["id"] for row in node.get(f"/attachments?{query}")["attachments"]]
    return [node.get(f"/attachments/{row_id}")["attachment"] for row_id in ids]


def _is_logged_in(attachment: dict[str, Any]) -> bool:
    """Whether a session of this host has the attachment's CHAP user: it is its own."""
    connection = attachment["connection_info"]
    user = connection.get("auth_username")
    return user is not None and user in session_users(connection.get("target_iqn"))


def _refuse_old_session(attachment: dict[str, Any]) -> None:
    """Refuse to use a session of an attachment that has ended.

    os-brick takes any session to a target for its own: its disk has no access, and its
    bytes in the page cache are from before.

    :raises InitiatorError: says how to end it.
    """
    connection = attachment["connection_info"]
    target = connection.get("target_iqn")
    if others := session_users(target) - {connection.get("auth_username")}:
        raise InitiatorError(
            f"this host has a session to {target} of an attachment that has ended"
            f" (user {', '.join(sorted(others))}): end what uses its disk, then"
            f" iscsiadm -m node -T {target} -u, and connect again"
        )


def _chosen(
    rows: list[dict[str, Any]],
    own: list[dict[str, Any]],
    attachment_id: str | None,
    volume: str,
) -> dict[str, Any]:
    """Return the attachment to end: the one that is named, or this host's only one.

    :raises Refused: there is none, there are several, or it is another host's.
    """
    if attachment_id:
        return _named(rows, own, attachment_id, volume)
    if len(own) == 1:
        return own[0]
    names = ", ".join(row["id"] for row in own or rows)
    if own:
        raise Refused(
            f"this host has {len(own)} attachments of volume {volume}; give"
            f" --attachment, one of: {names}"
        )
    raise Refused(
        f"this host is not logged in to volume {volume}; give --attachment, one of:"
        f" {names}"
        if rows
        else f"volume {volume} has no attachment"
    )


def _named(
    rows: list[dict[str, Any]],
    own: list[dict[str, Any]],
    attachment_id: str,
    volume: str,
) -> dict[str, Any]:
    """Return the attachment with this id.

    While this host is logged in, all of its attachments are known, so any other is
    another host's, whose access would end.
    """
    row = next((row for row in rows if row["id"] == attachment_id), None)
    if row is None:
        raise Refused(f"volume {volume} has no attachment {attachment_id}")
    if own and row not in own:
        raise Refused(
            f"attachment {attachment_id} is another host's; this host has:"
            f" {', '.join(other['id'] for other in own)}"
        )
    return row


def _undo(
    node: NodeClient,
    initiator: Initiator,
    attachment: dict[str, Any],
    keeps_session: bool,
) -> None:
    """End what ``connect`` has begun. What fails here is told beside the first error.

    A session from before is another attachment's too, so it stays.
    """
    with _told():
        wait_for_commands()
        if _is_logged_in(attachment) and not keeps_session:
            initiator.disconnect(_connection(attachment))
    with _told():
        _end(node, attachment)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Print an error of the block, and go on."""
    try:
        yield
    except Exception as error:
        print(f"lunshare: {error}", file=sys.stderr)


def _end(node: NodeClient, attachment: dict[str, Any]) -> None:
    """Delete an attachment.

    :raises Refused: names the attachment that stays, and how to end it.
    :raises Unreachable: the same.
    """
    row_id, volume = attachment["id"], attachment["volume_id"]
    try:
        node.delete(f"/attachments/{row_id}")
    except (Refused, Unreachable) as error:
        raise type(error)(
            f"attachment {row_id} stays ({error}): end it with lunshare disconnect"
            f" {volume} --attachment {row_id}"
        ) from None


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
