# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What several tests of the fleet print and read."""

from __future__ import annotations

from tests.fleet.stack import THIN, Stack


def say(*words: object) -> None:
    """Print a line of the transcript."""
    print("  ", *words, flush=True)


def modes(stack: Stack, volume_id: str, backend: str = THIN) -> dict[str, str]:
    """The mode of each host at the target."""
    acls = stack.exports(backend).get(volume_id, {})
    return {name.rpartition(":")[2]: mode for name, (mode, _) in acls.items()}
