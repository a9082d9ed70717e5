# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill a node in this process at one of its steps, as kill -9 kills a daemon.

A step is a commit to the database or a point in a driver. ``Killed`` is not an
Exception, so no code of lunshare can clean up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa

from lunshare.agent.model.records import Mode, NewAttachment, Page
from tests.stands.node import Node, host_connector

MANY = Page(None, 1000)
#: Points of health checks, which change nothing and run whenever they like.
_CHECKS = ("check", "capacity")
WIPES = "fake_wipe = true\nwipe_step = 256\nwipe_rate = 0"
#: The portals are closed to hosts without an attachment, too.
GUARDED = f"{WIPES}\nfake_firewall = true"


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Raises Killed at the n-th step, counted over commits and driver points."""

    def __init__(self, node: Node, at: int) -> None:
        self.left, self.fired = at, False
        database = node.assembly.database
        writing = database.writing

        @contextlib.contextmanager
        def failing_writes() -> Iterator[sa.Connection]:
            with writing() as connection:
                yield connection
                self.step("commit")

        database.writing = failing_writes  # type: ignore[method-assign]
        for name in ("fake", "other"):
            for driver in (node.driver(name), node.target(name)):
                driver.failures.watch(self.step)

    def step(self, where: str) -> None:
        if where in _CHECKS:
            return
        self.left -= 1
        if self.left <= 0:
            # Dead is dead: nothing that runs later does anything either.
            self.fired = True
            raise Killed


def attach_request(volume_id: str, host: str, mode: str) -> NewAttachment:
    return NewAttachment(volume_id, mode=Mode(mode), connector=host_connector(host))


def let_end(node: Node) -> None:
    """Let work that has outlived its request end, or be killed."""
    node.assembly.jobs.stop()
