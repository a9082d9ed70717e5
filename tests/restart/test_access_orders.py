# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The access of two hosts by two clients: every order of steps, a kill at every step.

No model stands for the node: the clients call its services, over a database and a
target in memory (docs/decisions/0044). This explores the usual operations, and
``every_access_order`` all of them. Nodes that are broken in one place are found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from lunshare.agent.db import attachments
from lunshare.agent.service.attachments import access, fencing, mode_change
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.fencing import Fences
from lunshare.agent.service.attachments.handover import Handovers
from lunshare.agent.service.attachments.mode_change import ModeChanges
from lunshare.agent.service.attachments.wanted_state import Wanted
from lunshare.agent.service.reconcile import Reconciler
from lunshare.drivers.values import Auth, Connector, Mode
from tests.restart.access_explorer import Explorer
from tests.restart.access_operations import NAMED, USUAL
from tests.restart.access_scenes import begin, explorer

__all__ = ["explorer"]

_BEGINNINGS = ("one writer of at most one", "a fenced writer of at most one")
#: What each run explores: of the second beginning, what there is beside an unfence.
_USUAL_PAIRS = (
    tuple(itertools.combinations_with_replacement(USUAL, 2)),
    tuple((NAMED["unfence a"], each) for each in (*USUAL, NAMED["connect: again a"])),
)


@pytest.mark.parametrize("number", range(2), ids=_BEGINNINGS)
def test_two_clients_in_every_order(explorer: Explorer, number: int) -> None:
    begun = begin(explorer, _BEGINNINGS[number])
    for clients in _USUAL_PAIRS[number]:
        explorer.explore(begun, clients)
    print(explorer.counted)
    assert explorer.counted.most_writers == 1


# Nodes that are broken in one place


def forget_before_closing(patch: pytest.MonkeyPatch) -> None:
    """The row says that an access is closed before the target has closed it."""
    detach = Access.detach_replaced

    def forget(self: Access, row: Any, *given: Any) -> Any:
        if row.former_initiator is not None:
            with self._db.writing() as connection:
                attachments.set_values(connection, row.id, former_initiator=None)
        return detach(self, row, *given)

    patch.setattr(Access, "detach_replaced", forget)


def decide_before_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Whether a host may write is decided on rows that others can change meanwhile."""

    def promote(self: ModeChanges, row: Any, mode: Mode, *_: Any) -> Any:
        with self._db.reading() as connection:
            volume = self.check_promotion(connection, row, mode)
        with self._db.writing() as connection:
            row = attachments.require(connection, row.id)
            row = mode_change.write(connection, row, mode, None)
        self.open(volume, row)
        return row

    patch.setattr(ModeChanges, "_promote", promote)


def open_before_the_row(patch: pytest.MonkeyPatch) -> None:
    """The target lets a host write before its row says so."""
    promote = ModeChanges._promote

    def early(self: ModeChanges, row: Any, mode: Mode, *given: Any) -> Any:
        with self._db.reading() as connection:
            volume = self.check_promotion(connection, row, mode)
        auth = Auth(row.auth_username, row.auth_password)
        wanted = Connector(row.initiator, mode, row.id, auth)
        self._access.apply(
            volume, row.initiator, Wanted((wanted,), frozenset({row.initiator}))
        )
        return promote(self, row, mode, *given)

    patch.setattr(ModeChanges, "_promote", early)


def promote_too_early(patch: pytest.MonkeyPatch) -> None:
    """A handover does not wait for the writes of who leaves."""
    patch.setattr(Handovers, "_fence", lambda *_: True)
    writers = attachments.writers

    def none_pending(connection: Any, volume_id: str) -> list[Any]:
        return [row for row in writers(connection, volume_id) if row.mode is Mode.RW]

    patch.setattr(attachments, "writers", none_pending)


def unfence_without_a_policy(patch: pytest.MonkeyPatch) -> None:
    """The end of a fence gives back a mode that the policy does not allow any more."""
    patch.setattr(fencing, "_lower", lambda *_: None)


def attach_fenced_hosts(patch: pytest.MonkeyPatch) -> None:
    """A fence takes the attachments that there are, and lets new ones be made."""
    service = "lunshare.agent.service.attachments.service.check_not_fenced"
    patch.setattr(service, lambda *_: None)


def fence_without_the_lock(patch: pytest.MonkeyPatch) -> None:
    """A fence closes an access beside an attach that opens it."""
    patch.setattr(Fences, "settle", Fences.settle_locked)


def leave_what_was_begun(patch: pytest.MonkeyPatch) -> None:
    """A start applies the rows, and ends nothing that they name."""
    patch.setattr(Reconciler, "_detach_unwanted", lambda *_: None)


def leave_handovers(patch: pytest.MonkeyPatch) -> None:
    """A start does not go on with a handover."""

    def apply(self: Reconciler, volume: Any, rows: Any, result: Any) -> None:
        for row in rows:
            self._detach_unwanted(row)
        self._access.apply(volume)

    patch.setattr(Reconciler, "_apply_locked", apply)


def count_no_leaving_writer(patch: pytest.MonkeyPatch) -> None:
    """A host that is losing its write access is not a writer any more."""
    present = access._unfenced_writers

    def without(connection: Any, volume_id: str) -> list[Any]:
        rows = present(connection, volume_id)
        return [row for row in rows if row.former_initiator is None]

    patch.setattr(access, "_unfenced_writers", without)


Break = Callable[[pytest.MonkeyPatch], None]
BROKEN: dict[Break, tuple[str, str, str]] = {
    forget_before_closing: (_BEGINNINGS[0], "demote a", "promote b"),
    decide_before_the_transaction: (
        "two readers",
        "promote a",
        "limit: to 0 a",
    ),
    open_before_the_row: (_BEGINNINGS[0], "promote b", "detach a"),
    promote_too_early: (_BEGINNINGS[0], "hand over: from one b", "detach a"),
    unfence_without_a_policy: (_BEGINNINGS[1], "promote b", "unfence a"),
    attach_fenced_hosts: (_BEGINNINGS[0], "fence a", "attach: rw a"),
    fence_without_the_lock: (_BEGINNINGS[0], "fence a", "attach: rw a"),
    leave_what_was_begun: (_BEGINNINGS[0], "demote a", "detach b"),
    leave_handovers: (_BEGINNINGS[0], "hand over: from one b", "detach a"),
    count_no_leaving_writer: (_BEGINNINGS[0], "demote: at once a", "promote b"),
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_node_is_found(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch, broken: Break
) -> None:
    scene, *names = BROKEN[broken]
    begun, clients = begin(explorer, scene), tuple(NAMED[name] for name in names)
    broken(monkeypatch)
    with pytest.raises(AssertionError) as found:
        explorer.explore(begun, clients)
    print(f"{broken.__doc__} {str(found.value).splitlines()[0]}")
