# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Wait for a status, as a person who asks again does."""

from __future__ import annotations

from collections.abc import Callable
from tests.scheduler.servers import until


def reached(status: Callable[[], str], wanted: str) -> None:
    """Poll until the status is the wanted one."""
    until(lambda: status() == wanted, f"status {wanted}", seconds=60)
