# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's tables: the state in the API and in the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_ISCSI = Path("/sys/kernel/config/target/iscsi")
_MEANING = {"0": "may write", "1": "read-only"}


def rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Columns of the needed width, under a line."""
    lines = [head, *body]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "    " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in ruled
    )


#: What it has of a detached host, until a reconcile and then (docs/decisions/0049).
CLOSED = ("an ACL without a LUN", "no ACL")


def kernel(iqn: str, initiator: str) -> str:
    """What the kernel allows this initiator, read from configfs."""
    acl = _ISCSI / iqn / "tpgt_1/acls" / initiator
    if not acl.is_dir():
        return "no ACL"
    if not (acl / "lun_0").is_dir():
        return "an ACL without a LUN"
    bit = (acl / "lun_0/write_protect").read_text().strip()
    return f"write_protect={bit} ({_MEANING.get(bit, 'nothing mapped')})"
