# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A backend of another vendor, with the most space and without multiattach."""

from __future__ import annotations

from typing import Any

from tests.bench.cinder_driver import NoStorage


class OtherBackend(NoStorage):
    """Run by Cinder's Python."""

    def get_volume_stats(self, refresh: bool = False) -> dict[str, Any]:
        """One pool, which a scheduler prefers if nothing else is wanted."""
        stats = super().get_volume_stats(refresh)
        return {**stats, "volume_backend_name": "other", "multiattach": False}
