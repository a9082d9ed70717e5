# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare why``: the one step that keeps a host from its volume, and its cure.

The steps are those of a login, in their order. A step is looked at only when all
before it are in order.
"""

from __future__ import annotations

import argparse
import shlex
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

from lunshare.agent.cli import consumer
from lunshare.agent.cli.client import NodeClient, Refused
from lunshare.agent.cli.commands import (
    DISAGREEMENT,
    DONE,
    Result,
    attachment_id,
    hosts_of,
    volume_id,
)
from lunshare.agent.cli.table import table

_PORTAL_SECONDS = 3.0
#: The statuses with which hosts may use a volume; an attachment has one of its own.
_EXPORTED = ("in-use", "available", "reserved", "attaching", "detaching", "extending")
_REPAIR = "the next reconcile repairs it; the journal of lunshared has what keeps it"


class LoginStep(NamedTuple):
    """One step: what is so, and its cure if it is broken."""

    name: str
    fact: str
    cure: str = ""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument(
        "host", metavar="HOST", help="its name, initiator, or attachment's id"
    )
    parser.add_argument("volume", metavar="VOLUME", help="id or name")


def why(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Name the one step that keeps a host from its volume, and its cure."""
    steps = list(_until_broken(_steps(node, arguments.host, arguments.volume)))
    *_, last = steps
    rows = [[step.name, "BROKEN" if step.cure else "ok", step.fact] for step in steps]
    lines = [table(("STEP", "STATE", "FACT"), rows)]
    lines += [f"What to do: {last.cure}."] if last.cure else []
    answer = [step._asdict() for step in steps]
    return Result(answer, "\n".join(lines), DISAGREEMENT if last.cure else DONE)


def _until_broken(steps: Iterator[LoginStep]) -> Iterator[LoginStep]:
    for step in steps:
        yield step
        if step.cure:
            return


def _steps(node: NodeClient, host: str, name: str) -> Iterator[LoginStep]:
    volume = node.get(f"/volumes/{volume_id(node, name)}")["volume"]
    yield _volume(volume)
    hosts = hosts_of(node, volume["id"])
    try:
        row_id = attachment_id(hosts, host)
    except Refused as error:
        cure = f"lunshare attach {volume['id']} {host}=INITIATOR, or see lunshare hosts"
        yield LoginStep("attachment", str(error), cure)
        return
    (line,) = (entry for entry in hosts if entry["attachment_id"] == row_id)
    row = node.get(f"/attachments/{row_id}")["attachment"]
    yield _attachment(row, line)
    info = consumer.iscsi_connection(row)
    yield from map(_portal, consumer.portals(info))
    yield _acl(line)
    yield _mode(line)
    yield _login(info, line)
    yield _session(line)


def _volume(volume: dict[str, Any]) -> LoginStep:
    fact = " ".join(filter(None, (volume["status"], volume.get("status_reason"))))
    is_good = volume["status"] in _EXPORTED
    return LoginStep("volume", fact, "" if is_good else "see lunshare errors")


def _attachment(row: dict[str, Any], line: dict[str, Any]) -> LoginStep:
    fact = " ".join(filter(None, (row["status"], row.get("status_reason"))))
    if row.get("fence") and line["allowed"] is None:
        host = line["host"] or line["initiator"]
        cure = f"if it may have access again: lunshare unfence {shlex.quote(host)}"
        return LoginStep("attachment", row["fence"], cure)
    if row["status"] in ("attached", "attaching"):
        return LoginStep("attachment", fact)
    return LoginStep(
        "attachment", fact, f"delete attachment {row['id']} and attach again"
    )


def _portal(portal: str) -> LoginStep:
    """Whether a connection to the portal can be opened from this machine."""
    address, port = consumer.split(portal)
    try:
        with socket.create_connection((address, int(port)), _PORTAL_SECONDS):
            return LoginStep("portal", f"{portal} answers this machine")
    except OSError as error:
        return LoginStep(
            "portal",
            f"{portal} does not answer this machine: {error.strerror or error}",
            "check the address and the network; with portal_firewall only the ip of a"
            " connector and initiator_networks are admitted; call this on the host",
        )


def _acl(line: dict[str, Any]) -> LoginStep:
    if line["allowed"] is None:
        fact = line["problem"] or "the target has no ACL for it"
        return LoginStep("ACL", fact, _REPAIR)
    return LoginStep("ACL", f"{line['initiator']} may log in")


def _mode(line: dict[str, Any]) -> LoginStep:
    if line["problem"]:
        return LoginStep("mode", line["problem"], _REPAIR)
    return LoginStep("mode", f"{line['allowed']}, in the database and in the kernel")


def _login(info: dict[str, Any], line: dict[str, Any]) -> LoginStep:
    if "auth_username" not in info:
        return LoginStep("login", "without a secret")
    return LoginStep("login", f"CHAP, user {info['auth_username']}")


def _session(line: dict[str, Any]) -> LoginStep:
    if line["sessions"] == 0:
        return LoginStep(
            "session",
            "the host has none",
            f"log in: lunshare consumer-config {line['attachment_id']}; a login that is"
            " refused has another initiator name or secret",
        )
    return LoginStep("session", f"from {', '.join(line['addresses']) or 'an address'}")
