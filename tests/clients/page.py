# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""docs/clients.md, made of what a run has done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.brick import commands as brick_commands
from tests.brick import pins as brick_pins
from tests.clients import pins, strategies
from tests.clients.coverage import LeftOut
from tests.clients.record import Entry

_START = """\
<!-- Written by `make clients-page` from what `make clients` did. -->

# Clients

What works with which client. `make clients` drives each command below, with the client
itself, against a running lunshared on fake backends, and fails if this page differs.
"works" means: the client ended without an error, and what it changed was there
afterwards. A column has the name of an `auth_strategy` with which it was driven, as an
administrator; its Keystone is a real one. The microversion is 3.71, for Nova those that
it asks for.

## Settings

What made each client work. A word in capitals is yours. openstack, the SDK and Ansible
read the same environment. Cinder's command has no http_basic of its own: it takes name
and password in the URL. With Keystone, Nova sends the token of its user and its own.
"""

_END = """\
## Terraform and OpenTofu

Not driven. Their provider for OpenStack comes only from its own registry; PyPI, npm and
Debian do not have it. It uses the routes of the other clients: volumes, snapshots,
types, attachments, quotas, QoS specs.
"""

_BRICK = """\
A host attaches a volume to itself. `make local-attach` drives these commands as root in
the lab, with microversions {versions}: the bytes that the host writes are on the
volume's disk, and local-detach leaves no device, session or record of the target on
the host, and no target. The extension prints tables with a function that cinderclient
9 does not have. Such a command does its work, and then ends with exit code 1 and this
error:

    {error}

get-volume-paths then prints the device. os-brick also needs:

    {environ}

| command | what it does |
|---|---|"""

_YOURS = {
    "address": "NODE:8776",
    "user": "USER",
    "password": "PASSWORD",
    "project": "PROJECT",
    "project_name": "PROJECT",
    "service": "NOVA",
    "keystone": "http://KEYSTONE:5000/v3",
}

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
    parts = [_START, *_settings()]
    for client in TITLES:
        parts.append(
            _section(
                client,
                [each for each in entries if each.client == client],
                [each for each in left_out if each.client == client],
            )
        )
    return "\n".join([*parts, brick(), _END])


def brick() -> str:
    """The commands of a host that attaches by itself, which need a kernel."""
    versions = " and ".join(brick_commands.MICROVERSIONS)
    title = f"## cinder with {brick_pins.BRICK.replace('==', ' ')}"
    rows = [f"| `{name}` | {does} |" for name, does in brick_commands.COMMANDS.items()]
    text = _BRICK.format(
        versions=versions,
        error=brick_commands.NO_TABLE,
        environ=_environ(brick_commands.ENVIRON),
    )
    return "\n".join([title, "", text, *rows, ""])


def _settings() -> list[str]:
    """The settings of each strategy, as the tests gave them to the clients."""
    parts = []
    for name, strategy in strategies.TABLE.items():
        settings = {
            "openstack, SDK, Ansible": _environ(strategy.environ),
            "cinder": _environ(strategy.cinder),
            "nova.conf": strategy.nova.strip(),
        }
        for client, text in settings.items():
            shown = text.format(**_YOURS).replace("\n", "\n    ")
            parts.append(f"{name}, {client}:\n\n    {shown}\n")
    return parts


def _environ(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in values.items())


def _section(client: str, entries: list[Entry], left_out: list[LeftOut]) -> str:
    title, kind = TITLES[client]
    names = [*strategies.TABLE]
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
        for sentence, commands in sorted(refused.items())
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
