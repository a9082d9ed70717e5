# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Completion in bash: what argparse knows, and names that the node has.

``systemd/install`` writes the function that bash calls; it runs ``lunshare`` itself.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

from lunshare.agent.cli import commands
from lunshare.agent.cli.client import NodeClient, Refused, Unreachable

_SECONDS = 2.0  # somebody waits at a prompt
_LIMIT = 200  # of volumes; more are of no use as a list

Lister = Callable[[NodeClient, argparse.Namespace, str], Iterable[str | None]]


def answer(parser: argparse.ArgumentParser) -> None:
    """Print the words that bash asks for, and end the process; else do nothing."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415 (no command needs it)

        argcomplete.autocomplete(
            parser,
            always_complete_options=False,
            default_completer=_names,  # type: ignore[arg-type]  # it is only called
        )


def _names(
    prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: object
) -> list[str]:
    """Return the names for one argument, none if the node does not answer in time."""
    lister = _LISTERS.get(str(action.metavar or action.dest.upper()))
    if lister is None:
        return []
    node = NodeClient(parsed_args.endpoint, _SECONDS)
    try:
        # A name may have signs that command the terminal.
        names = lister(node, parsed_args, prefix)
        return [name for name in names if name and name.isprintable()]
    except (Refused, Unreachable):
        return []


def _volumes(
    node: NodeClient, arguments: argparse.Namespace, prefix: str
) -> Iterator[str]:
    """Yield names, and the ids of volumes without one, or with this start."""
    query = {"all_tenants": 1, "limit": _LIMIT}
    for volume in node.get(f"/volumes?{urlencode(query)}")["volumes"]:
        is_wanted = not volume["name"] or (prefix and volume["id"].startswith(prefix))
        yield volume["id"] if is_wanted else volume["name"]


def _hosts(
    node: NodeClient, arguments: argparse.Namespace, prefix: str
) -> Iterator[str]:
    """Yield the hosts of the volume of the command line, else of every volume."""
    for line in _lines(node, arguments):
        yield line["host"] or line["initiator"]


def _pairs(
    node: NodeClient, arguments: argparse.Namespace, prefix: str
) -> Iterator[str]:
    """Yield the hosts that the node knows already, as HOST=INITIATOR."""
    for line in node.get("/lunshare/hosts")["hosts"]:
        if line["host"]:
            yield f"{line['host']}={line['initiator']}"


def _attachments(
    node: NodeClient, arguments: argparse.Namespace, prefix: str
) -> Iterator[str]:
    for line in _lines(node, arguments):
        yield line["attachment_id"]


def _lines(node: NodeClient, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    volume = getattr(arguments, "volume", None)
    if volume:
        return commands.hosts_of(node, commands.volume_id(node, volume))
    lines: list[dict[str, Any]] = node.get("/lunshare/hosts")["hosts"]
    return lines


def _types(
    node: NodeClient, arguments: argparse.Namespace, prefix: str
) -> Iterator[str]:
    for kind in node.get("/types?is_public=None")["volume_types"]:
        yield kind["name"]


#: By what the help calls an argument.
_LISTERS: dict[str, Lister] = {
    "VOLUME": _volumes,
    "HOST": _hosts,
    "HOST=INITIATOR[@IP]": _pairs,
    "ATTACHMENT": _attachments,
    "TYPE": _types,
}
