# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What ``--help`` of ``lunshare`` and of each command ends with.

A test parses every example.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable
from typing import Any

_ALPHA = "alpha=iqn.1993-08.org.debian:01:a1"
_BETA = "beta=iqn.1993-08.org.debian:01:b2"
_ID = "7037f957-bdcc-43bf-a527-d7d6af56d84e"

#: What a user would type, for each command.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "pools": ("lunshare pools",),
    "share": (f"lunshare share 10 --name db --rw {_ALPHA} --ro {_BETA}",),
    "attach": (
        f"lunshare attach db {_BETA}@192.0.2.7 --mode ro",
        f"lunshare attach db --rw {_ALPHA} --ro {_BETA}",
    ),
    "detach": ("lunshare detach db beta", "lunshare detach db --all"),
    "mode": ("lunshare mode db alpha ro", "lunshare mode db alpha ro --immediate"),
    "lease": ("lunshare lease db alpha --ttl 30 --next",),
    "renew": ("lunshare renew db alpha",),
    "consumer-config": (
        f"lunshare consumer-config {_ID}",
        f"lunshare consumer-config {_ID} --format libvirt",
    ),
    "hosts": ("lunshare hosts", "lunshare hosts db --watch"),
    "verify": ("lunshare verify", "lunshare verify db --repair"),
    "why": ("lunshare why beta db",),
    "prove": ("lunshare prove db",),
    "handover": (
        "lunshare handover db --to beta",
        "lunshare handover db --from alpha --to beta --force   # alpha is dead",
        "lunshare handover db                                  # how it stands",
    ),
    "fence": ("lunshare fence beta", "lunshare fence beta --writes"),
    "unfence": ("lunshare unfence beta",),
    "fences": ("lunshare fences",),
    "explain": ("lunshare explain --size 10 --type multiattach",),
    "errors": ("lunshare errors",),
    "wipes": ("lunshare wipes", "lunshare wipes --wait"),
    "messages": ("lunshare messages --limit 5",),
    "orphans": ("lunshare orphans",),
    "recover": (f"lunshare recover {_ID} --name db",),
    "delete-orphan": (f"lunshare delete-orphan disk {_ID} --yes",),
    "connect": ("lunshare connect db --mode ro",),
    "disconnect": ("lunshare disconnect db",),
    "user add": ("lunshare user add anna --roles member --project PROJECT",),
    "user remove": ("lunshare user remove anna",),
    "user list": ("lunshare user list",),
    "user set-roles": ("lunshare user set-roles anna member,reader",),
}

#: Exit codes, the commands that have them (none: all), and what they mean.
_CODES: tuple[tuple[int, tuple[str, ...], str], ...] = (
    (0, (), "done"),
    (1, (), "it was refused, or its output is lost; standard error has the reason"),
    (2, (), "the command line is wrong"),
    (3, (), "no node answers at the endpoint"),
    (4, ("explain",), "no pool would get such a volume"),
    (5, ("hosts", "verify"), "the target differs from the database"),
    (5, ("why",), "one step is broken"),
    (5, ("prove",), "the target has accepted a write"),
    (6, ("connect", "prove"), "this host cannot log in"),
    (6, ("disconnect",), "the disk is in use, or this host cannot log out"),
    (7, ("handover", "mode"), "it has failed, or writes may still land: pending"),
    (7, ("fence", "fences"), "not all of it is closed yet"),
    (7, ("unfence",), "not all of it is open yet"),
    (7, ("verify",), "a target could not be compared: it is busy, or hangs"),
    (130, (), "interrupted from the keyboard"),
)


def add_command(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    function: Callable[..., Any],
    common: argparse.ArgumentParser,
    group: str = "",
) -> argparse.ArgumentParser:
    """Add a command below ``group``; its docstring says what it does."""
    text = inspect.cleandoc(function.__doc__ or "")
    return verbs.add_parser(
        name,
        parents=[common],
        help=text.partition("\n")[0],
        description=text,
        epilog=_of_command(f"{group} {name}".strip()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def of_all_commands() -> str:
    """Return the exit codes, for the help of ``lunshare`` itself."""
    return _table(
        (code, f"{', '.join(names)}: {text}" if names else text)
        for code, names, text in _CODES
    )


def _of_command(name: str) -> str:
    """Return the examples of one command, and its exit codes."""
    examples = "\n".join(f"  {line}" for line in EXAMPLES[name])
    codes = _table(
        (code, text) for code, names, text in _CODES if not names or name in names
    )
    return f"example:\n{examples}\n\n{codes}"


def _table(codes: Iterable[tuple[int, str]]) -> str:
    return "\n".join(["exit codes:", *(f"{code:>4}  {text}" for code, text in codes)])
