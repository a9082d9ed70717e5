# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the system tests: the installed node, its volumes and other hosts."""

from __future__ import annotations

from tests.system.conftest import api, borrow, host, volumes

__all__ = ["api", "borrow", "host", "volumes"]
