# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""docs/clients.md, made of what a run has done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.clients import pins, strategies
from tests.clients.coverage import LeftOut
from tests.clients.record import Entry

_START = """\
<!-- Written by `make clients-page` from what `make clients` did. -->

# Clients

What works with which client. `make clients` drives each command below, with the client
itself, against a running lunshared on fake backends, and fails if this page differs.
"works" means: the client ended without an error, and what it changed was there
afterwards. A column has the name of an auth strategy with which it was driven. The
microversion is 3.71, for Nova those that it asks for.
"""

_END = """\
## Terraform and OpenTofu

Not driven. Their provider for OpenStack comes only from its own registry; PyPI, npm and
Debian do not have it. It uses the routes of the other clients: volumes, snapshots,
types, attachments, quotas, QoS specs.
"""

TITLES: Mapping[str, tuple[str, str]] = {
    "cinder": (f"The command cinder ({pins.CINDERCLIENT})", "command"),
    "openstack": (f"The command openstack ({pins.OPENSTACKCLIENT})", "command"),
    "openstacksdk": (f"connection.block_storage ({pins.SDK})", "method"),
    "nova": (f"nova.volume.cinder.API ({pins.NOVA})", "method"),
    "ansible": (
        f"openstack.cloud (of {pins.ANSIBLE}, with {pins.ANSIBLE_CORE} and"
        f" {pins.ANSIBLE_SDK})",
        "module",
    ),
}


def text(entries: Sequence[Entry], left_out: Sequence[LeftOut]) -> str:
    """The whole page."""
    parts = [_START]
    for client in TITLES:
        parts.append(
            _section(
                client,
                [each for each in entries if each.client == client],
                [each for each in left_out if each.client == client],
            )
        )
    return "\n".join([*parts, _END])


def _section(client: str, entries: list[Entry], left_out: list[LeftOut]) -> str:
    title, kind = TITLES[client]
    names = [each.name for each in strategies.TABLE]
    lines = [f"## {title.replace('==', ' ')}", ""]
    lines += [f"| {kind} | {' | '.join(names)} |", f"|---{'|---' * len(names)}|"]
    works = _by_command(each for each in entries if not each.refusal)
    for command in sorted(works):
        marks = ("works" if name in works[command] else "" for name in names)
        lines.append(f"| `{command}` | {' | '.join(marks)} |")
    return "\n".join([*lines, "", *_others(entries, left_out)])


def _others(entries: list[Entry], left_out: list[LeftOut]) -> list[str]:
    refused: dict[str, set[str]] = {}
    for each in entries:
        if each.refusal:
            refused.setdefault(each.refusal, set()).add(each.command)
    lines = [
        f'- "{sentence.rstrip(".")}": {_names(commands)}'
        for sentence, commands in refused.items()
    ]
    found = ["Refused, with this text:", "", *lines, ""] if lines else []
    lines = [f"- {each.reason}: {_names(each.commands)}" for each in left_out]
    return [*found, "Not driven:", "", *lines, ""] if lines else found


def _by_command(entries: Iterable[Entry]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in entries:
        found.setdefault(each.command, set()).add(each.strategy)
    return found


def _names(commands: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(commands))
