# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether every command of every client was asked, or is listed with a reason."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients import pins
from tests.clients.process import PROGRAMS
from tests.clients.record import Entry
from tests.lab.steps import sh

FILE = Path(__file__).with_name("left_out.toml")


@dataclass(frozen=True)
class LeftOut:
    """Commands of one client that no test asks, and why."""

    client: str
    reason: str
    commands: tuple[str, ...]


def check(entries: Iterable[Entry]) -> list[LeftOut]:
    """What is left out of all commands.

    A command that is not asked must be listed, and an expression of the list must
    find such a command.
    """
    asked: dict[str, set[str]] = {}
    for entry in entries:
        # "create --image-id" is a form of create.
        command = entry.command.partition(" --")[0]
        asked.setdefault(entry.client, set()).add(command)
    missing = {
        client: [each for each in names if each not in asked[client]]
        for client, names in commands().items()
    }
    left_out = _apply(tomllib.loads(FILE.read_text())["left_out"], missing)
    assert not any(missing.values()), f"neither asked nor in {FILE.name}: {missing}"
    return left_out


def _apply(
    listed: Sequence[Mapping[str, str]], missing: dict[str, list[str]]
) -> list[LeftOut]:
    """Take what the list names out of ``missing``."""
    found = []
    for entry in listed:
        names = missing[entry["client"]]
        hits = [name for name in names if re.fullmatch(entry["commands"], name)]
        assert hits, f"{FILE.name}: {entry['commands']} finds no command that is left"
        missing[entry["client"]] = [name for name in names if name not in hits]
        found.append(LeftOut(entry["client"], entry["reason"], tuple(hits)))
    return found


def commands() -> dict[str, list[str]]:
    """What each client has, by its own tables."""
    found = {
        client: json.loads(_inventory(venv, client))
        for venv, clients in (
            (pins.clients(), ("cinder", "openstack", "openstacksdk")),
            (pins.nova(), ("nova",)),
        )
        for client in clients
    }
    modules = "ansible_collections/openstack/cloud/plugins/modules/*volume*.py"
    found["ansible"] = sorted(path.stem for path in pins.collections().glob(modules))
    return found


def _inventory(venv: Path, client: str) -> str:
    words = [venv / "bin/python", "-W", "ignore", PROGRAMS / "inventory.py", client]
    return sh(words, env=pins.environ()).splitlines()[-1]
