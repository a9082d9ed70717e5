# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Clients with the rights of a member: several users of several projects.

Each project has small quotas, so many of its requests are refused with 413, and its
clients share its volumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.api.identity_daemon import HASH
from tests.storm import hostile_member, hosts, legacy, volumes
from tests.storm.chaos import on_any
from tests.storm.client import Client, Shared
from tests.storm.world import World

PROJECTS = ("red", "green", "blue")
ADMINISTRATORS = ("admin-0", "admin-1")
OWNER = "os-vol-tenant-attr:tenant_id"
REST = 0.02  # the longest that such a client rests

#: The operations of a member, each with its weight.
TENANT: list[tuple[Callable[[Client], None], int]] = [
    (volumes.create, 14),
    (on_any(volumes.delete_any), 8),
    (on_any(volumes.extend), 3),
    (on_any(volumes.snapshot), 4),
    (on_any(volumes.delete_snapshot), 4),
    (on_any(volumes.clone), 2),
    (on_any(volumes.rename), 2),
    (on_any(hosts.attach), 12),
    (hosts.connect, 4),
    (hosts.complete, 6),
    (hosts.detach, 14),
    (hosts.write, 6),
    (legacy.use_own_volume, 12),
    (legacy.use_shared_volume, 10),
]


def users(work: Path, tenants: int) -> Path:
    """Write the file of users: two administrators, each client, a hostile member."""
    found = [(name, "admin", "storm") for name in ADMINISTRATORS]
    found += [(f"user-{n}", "member", _project(n)) for n in range(tenants)]
    found.append((hostile_member.NAME, "member", hostile_member.PROJECT))
    lines = [f"{name}:{HASH}:{role}:{project}\n" for name, role, project in found]
    file = work / "users"
    file.write_text("".join(lines))
    return file


class Tenants:
    """These clients, and what their projects have."""

    def __init__(self, shared: Shared, count: int, first: int) -> None:
        """``first``: the number of the first of ``count`` clients."""
        known = {name: World(shared.world.host, name) for name in PROJECTS[:count]}
        for world in known.values():
            world.alive = shared.world.alive
        self.worlds = list(known.values())
        self.clients = [
            Client(
                first + number,
                replace(shared, world=known[_project(number)], user=f"user-{number}"),
            )
            for number in range(count)
        ]

    def limit(self, director: Client) -> None:
        """Set the quotas: less than what the clients want."""
        for world in self.worlds:
            own = sum(client.world is world for client in self.clients)
            most = {"volumes": own + 5, "gigabytes": own + 10, "snapshots": 2}
            op = director.begin("quotas", world.project, **most)
            path = f"/v3/os-quota-sets/{world.project}"
            director.api.ask(op, "PUT", path, {"quota_set": most})

    def detach_hosts(self, director: Client) -> None:
        """End what legacy actions without an answer have left."""
        for world in self.worlds:
            legacy.detach_hosts(director, world.legacy)
        for client in self.clients:
            own = [client.own] if client.own else []
            legacy.detach_hosts(director, [*own, *client.given_up])


def _project(number: int) -> str:
    return PROJECTS[number % len(PROJECTS)]
