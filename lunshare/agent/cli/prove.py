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
from lunshare.agent.cli.table import table
from lunshare.host.initiator import InitiatorError
from lunshare.host.write_attempts import try_writes

_PROTECTED = "07/27/00"  # DATA PROTECT, WRITE PROTECTED (SPC-4 annex F)


def describe(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("volume", metavar="VOLUME", help="id or name")
    parser.set_defaults(multipath=False, mode="ro", attachment=None)


def prove(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Attach a volume here read-only, try to write it, and print the sense codes.

    The writes have the bytes that the disk has, so a target that accepts one changes
    nothing. The attachment ends with the command.
    """
    reader = connect(node, arguments).answer
    arguments.attachment = reader["attachment_id"]
    try:
        attempts, changed = try_writes(reader["path"])
    except OSError as error:
        raise InitiatorError(f"{reader['path']}: {error}") from None
    finally:
        disconnect(node, arguments)
    rows = [
        [a.command, "refused" if a.sense else "ACCEPTED", a.sense] for a in attempts
    ]
    block = "has other bytes now: another host wrote it, or the target let one through"
    lines = [table(("COMMAND", "TARGET", "SENSE"), rows)]
    lines += [f"The block {block if changed else 'has the same bytes as before'}."]
    is_proven = all(attempt.sense == _PROTECTED for attempt in attempts)
    lines += ["Proven: no such host can write." if is_proven else "NOT proven."]
    answer = {
        "attempts": [attempt._asdict() for attempt in attempts],
        "changed": changed,
        "proven": is_proven,
    }
    return Result(answer, "\n".join(lines), DONE if is_proven else DISAGREEMENT)
