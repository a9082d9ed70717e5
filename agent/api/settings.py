# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the API. lunshare.agent.assemble reads them from the files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Options of the API.

    ``public_endpoint`` replaces scheme and host in links. ``max_limit`` is the
    most items of one page, ``max_body`` the largest request body in bytes.
    ``default_project`` is the project of a client that names none.
    """

    auth_strategy: str = "noauth"
    public_endpoint: str | None = None
    max_limit: int = 1000
    max_body: int = 1024 * 1024
    default_project: str = "default"
