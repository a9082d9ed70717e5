# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print the routes of the API: method, path, first microversion, handler."""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.routes import ROUTES


def as_text() -> str:
    """Return the table as text."""
    return "\n".join(
        f"{route.method:<7}{route.path:<40}{microversions.text(route.since):<6}"
        f"{route.handler.__module__.rpartition('.')[2]}.{route.handler.__name__}"
        for route in ROUTES
    )


if __name__ == "__main__":
    print(as_text())
