# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the API. lunshare.agent.assemble reads them from the files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lunshare.agent.listen_addresses import Address


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Options of the API.

    ``public_endpoint`` replaces scheme and host in links. ``max_limit`` is the
    most items of one page, ``max_body`` the largest request body in bytes.
    ``default_project`` is the project of a client that names none.
    ``users_file`` has the users of http_basic, whose passwords ``password_checks``
    threads may check at once. ``auth_url`` is where a client gets a token of
    Keystone. ``allowed_hosts`` are further names of this node.
    """

    auth_strategy: str = "noauth"
    public_endpoint: str | None = None
    max_limit: int = 1000
    max_body: int = 1024 * 1024
    default_project: str = "default"
    users_file: str = ""
    password_checks: int = 2
    auth_url: str = ""
    addresses: tuple[Address, ...] = ()
    allowed_hosts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[Sequence[Address], str | None, Collection[str]]:
        """Return the arguments of lunshare.agent.api.access.origins.Origins."""
        return self.addresses, self.public_endpoint, self.allowed_hosts
