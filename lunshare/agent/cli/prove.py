# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare prove``: that a read-only host of a volume cannot write it.

This host becomes a reader for a moment, and sends writes past its own checks.
"""

from __future__ import annotations

import argparse

from lunshare.agent.cli.client import NodeClient
from lunshare.agent.cli.commands import DISAGREEMENT, DONE, Result
from lunshare.agent.cli.connect import connect, disconnect
from lunshare.agent.cli.end_signals import EndSignals
from lunshare.agent.cli.table import table
from lunshare.host.initiator import InitiatorError
from lunshare.host.write_attempts import MISCOMPARED, PROTECTED, Attempt, try_writes

_ENDS = {"": "ACCEPTED", MISCOMPARED: "ACCEPTED"}


def describe(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("volume", metavar="VOLUME", help="id or name")
    parser.set_defaults(multipath=False, mode="ro", attachment=None)


def prove(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Attach a volume here read-only, as root; try to write it; print the sense codes.

    The first command writes nothing, also where the target lets it through; others
    follow only while each was refused. The attachment ends with the command.
    """
    attempts, changed = _tried(node, arguments)
    rows = [[a.command, _ENDS.get(a.sense, "refused"), a.sense] for a in attempts]
    block = "has other bytes now: another host wrote it, or the target let one through"
    lines = [table(("COMMAND", "TARGET", "SENSE"), rows)]
    lines += [f"The block {block if changed else 'has the same bytes as before'}."]
    is_proven = all(attempt.sense == PROTECTED for attempt in attempts)
    lines += ["Proven: no such host can write." if is_proven else "NOT proven."]
    answer = {
        "attempts": [attempt._asdict() for attempt in attempts],
        "changed": changed,
        "proven": is_proven,
    }
    return Result(answer, "\n".join(lines), DONE if is_proven else DISAGREEMENT)


def _tried(
    node: NodeClient, arguments: argparse.Namespace
) -> tuple[list[Attempt], bool]:
    """Try writes as a reader of this host, which ends also at a signal."""
    signals, reader = EndSignals(), None
    with signals.raised():
        try:
            with signals.held():
                reader = connect(node, arguments).answer
            return try_writes(reader["path"])
        except OSError as error:
            raise InitiatorError(str(error)) from None
        finally:
            if reader:
                arguments.attachment = reader["attachment_id"]
                disconnect(node, arguments)
