# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare-helper exports``: list and remove the exports of this node.

For root, while the daemon is stopped or uninstalled. It sends requests to the running
helper. A running daemon creates again what its database wants.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from lunshare.drivers.errors import DriverError, InvalidValue
from lunshare.drivers.protocol import frames, messages
from lunshare.drivers.values import require_uuid

# The default of the daemon's lio_deadline: the writes of a session have to land.
_SECONDS = 30.0

Export = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """List exports, or remove them; without --yes only show what would be removed."""
    options = _parser().parse_args(argv)
    try:
        with _connected(options.socket) as helper:
            return _run(helper, options)
    except (DriverError, OSError, frames.BadFrame, frames.Closed) as error:
        print(f"lunshare-helper: {_sentence(error, options.socket)}", file=sys.stderr)
        return 1


def _run(helper: socket.socket, asked: argparse.Namespace) -> int:
    exports: list[Export] = _ask(helper, "lio.observe")
    if not asked.remove and not asked.all:
        _show(exports)
        return 0
    chosen = exports if asked.all else [_named(exports, word) for word in asked.remove]
    for export in chosen:
        name = f"export of volume {export['volume_id']} ({_hosts(export)})"
        if not asked.yes:
            print(f"would remove: {name}")
            continue
        _ask(helper, "lio.remove", volume_id=export["volume_id"])
        print(f"removed: {name}")
    if not asked.yes:
        print("nothing is removed without --yes")
    return 0


def _show(found: Sequence[Export]) -> None:
    for export in found:
        state = "" if export["enabled"] else ", not enabled"
        print(f"volume {export['volume_id']}: {_hosts(export)}{state}")
        for connector in export["connectors"]:
            live = "logged in" if connector["sessions"] != 0 else "not logged in"
            mode, attachment = connector["mode"] or "no LUN", connector["attachment_id"]
            print(
                f"    {connector['initiator']}  {mode}  {live}  attachment {attachment}"
            )
    print(f"{len(found)} exports")


def _hosts(export: Export) -> str:
    live = sum(1 for connector in export["connectors"] if connector["sessions"] != 0)
    return f"{len(export['connectors'])} hosts, {live} logged in"


def _named(found: Sequence[Export], volume_id: str) -> Export:
    for export in found:
        if export["volume_id"] == volume_id:
            return export
    raise InvalidValue("--remove", volume_id, "give an id that the list has")


def _ask(helper: socket.socket, verb: str, **arguments: Any) -> Any:
    frames.send(helper, messages.request(verb, _SECONDS, arguments))
    answer = frames.receive(helper)
    if "error" in answer:
        raise messages.error_of(answer)
    return answer["value"]


@contextlib.contextmanager
def _connected(path: str) -> Iterator[socket.socket]:
    with frames.connect(path, _SECONDS) as helper:
        helper.settimeout(_SECONDS + 5.0)
        yield helper


def _sentence(error: Exception, path: str) -> str:
    if isinstance(error, DriverError):
        return str(error)
    return (
        f"the helper does not answer at {path} ({error}): systemctl restart"
        " lunshare-helper.socket lunshare-helper.service, as root"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lunshare-helper exports", description=__doc__
    )
    parser.add_argument("--socket", default="/run/lunshare/helper.sock")
    parser.add_argument(
        "--remove",
        metavar="ID",
        type=_volume_id,
        action="append",
        default=[],
        help="end the sessions of this volume's hosts and remove its export; their"
        " writes have landed then; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="remove every export")
    parser.add_argument("--yes", action="store_true", help="do it")
    return parser


def _volume_id(text: str) -> str:
    try:
        return require_uuid(text)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None
