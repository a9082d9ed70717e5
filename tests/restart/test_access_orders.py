# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The access of two hosts by two clients: every order of steps, a kill at every step.

No model stands for the node: the clients call its services, over a database and a
target in memory (docs/decisions/0044). This explores the usual operations, and
``every_access_order`` all of them. Nodes that are broken in one place are found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lunshare.agent.db import attachments, due_attachments
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.service.attachments import access, fencing, mode_change
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.batches import Batches
from lunshare.agent.service.attachments.handover import Handovers
from lunshare.agent.service.attachments.leases import Leases
from lunshare.agent.service.attachments.mode_change import ModeChanges
from lunshare.agent.service.attachments.volume_queues import VolumeQueues
from lunshare.agent.service.attachments.wanted_state import Wanted
from lunshare.agent.service.reconcile import Reconciler
from lunshare.drivers.values import Auth, Connector, Mode
from tests.restart.access_explorer import Explorer
from tests.restart.access_operations import NAMED, USUAL, Operation
from tests.restart.access_scenes import begin, explorer

__all__ = ["explorer"]


def _beside(name: str, others: Iterable[Operation]) -> list[tuple[Operation, ...]]:
    return [(NAMED[name], other) for other in others]


_AGAIN, _TIME, _RENEWS = (NAMED[n] for n in ("connect: again a", "time a", "renew a"))
_BOTH = [NAMED[f"attach both: {mode} a"] for mode in ("ro", "no mode")]
_ONE_WRITER, _FENCED = "one writer of at most one", "a fenced writer of at most one"
_LEASED, _PASSED_ON = "a writer with a lease", "a lease that the next one gets"
#: What each run explores, by the beginning.
_USUAL_PAIRS: dict[str, list[tuple[Operation, ...]]] = {
    _ONE_WRITER: [
        *itertools.combinations_with_replacement(USUAL, 2),
        *_beside("detach both a", (*USUAL, *_BOTH)),
        *_beside("lend b", (NAMED["demote a"], NAMED["detach a"], NAMED["fence b"])),
    ],
    _FENCED: _beside("unfence a", (*USUAL, _AGAIN)),
    _LEASED: [*_beside("time a", (*USUAL, _RENEWS)), *_beside("renew a", USUAL)],
    _PASSED_ON: _beside("time a", (*USUAL, _RENEWS, _TIME, NAMED["lend b"])),
    "nobody": [
        *itertools.combinations_with_replacement(_BOTH, 2),
        *_beside("attach both: no mode a", USUAL),
    ],
}


@pytest.mark.parametrize("scene", _USUAL_PAIRS)
def test_two_clients_in_every_order(explorer: Explorer, scene: str) -> None:
    begun = begin(explorer, scene)
    for clients in _USUAL_PAIRS[scene]:
        explorer.explore(begun, clients)
    print(explorer.counted)
    assert explorer.counted.most_writers == 1


def test_a_reconcile_alone_whose_steps_fail(explorer: Explorer) -> None:
    """What it remembers of one order, the next one must not find."""
    explorer.explore(begin(explorer, _ONE_WRITER), (NAMED["reconcile a"],), faults=1)
    assert explorer.counted.orders > 1


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
            volume = self.check_promotion(connection, row)
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
            volume = self.check_promotion(connection, row)
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

    def run(self: VolumeQueues, volume_id: str) -> None:
        for ident, future in self._take(volume_id):
            self._work(ident)
            future.set_result(None)

    patch.setattr(VolumeQueues, "run", run)


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
    present = access.unfenced_writers

    def without(connection: Any, volume_id: str) -> list[Any]:
        rows = present(connection, volume_id)
        return [row for row in rows if row.former_initiator is None]

    patch.setattr(access, "unfenced_writers", without)


def end_leases_too_early(patch: pytest.MonkeyPatch) -> None:
    """The timer ends every lease at which it looks, also one that was renewed."""
    commit, ended = Leases._commit_end, due_attachments.ended
    of_volume = due_attachments.ended_of_volume

    def anyway(self: Leases, attachment_id: str) -> Any:
        with self._db.writing() as connection:
            attachments.set_values(connection, attachment_id, lease_ends=0.0)
        return commit(self, attachment_id)

    patch.setattr(
        due_attachments, "ended", lambda connection, _: ended(connection, math.inf)
    )
    patch.setattr(
        due_attachments,
        "ended_of_volume",
        lambda connection, ident, _: of_volume(connection, ident, math.inf),
    )
    patch.setattr(Leases, "_commit_end", anyway)


def renew_ended_leases(patch: pytest.MonkeyPatch) -> None:
    """A renewal does not look whether the lease has ended."""

    def renew(self: Leases, ctx: Any, attachment_id: str, ttl: int) -> Any:
        with self._db.writing() as connection:
            row = attachments.require(connection, attachment_id, ctx)
            return mode_change.lend(connection, row, NewLease(ttl))

    patch.setattr(Leases, "renew", renew)


def leave_ended_leases(patch: pytest.MonkeyPatch) -> None:
    """A start does not end what has ended while no daemon ran."""
    patch.setattr(Leases, "end_all", lambda _: None)


def open_each_of_a_batch_alone(patch: pytest.MonkeyPatch) -> None:
    """The rows of a batch are one commit; that they are open is one for each."""
    opens = Batches._open

    def alone(self: Batches, volume: Any, rows: Any, accesses: Any) -> list[Any]:
        return [
            one
            for row in rows
            for one in opens(
                self, volume, [row], {row.initiator: accesses[row.initiator]}
            )
        ]

    patch.setattr(Batches, "_open", alone)


def close_one_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    """The end of a batch closes the first access only."""

    def first(self: Access, volume: Any, rows: list[Any], _: Wanted) -> None:
        self.apply(volume, rows[0].initiator)

    patch.setattr(Access, "_detach", first)


Break = Callable[[pytest.MonkeyPatch], None]
BROKEN: dict[Break, tuple[str, str, str]] = {
    end_leases_too_early: (_LEASED, "time a", "renew a"),
    renew_ended_leases: (_LEASED, "time a", "renew a"),
    leave_ended_leases: (_LEASED, "renew a", "detach b"),
    open_each_of_a_batch_alone: ("nobody", "attach both: ro a", "limit: to 1 a"),
    close_one_of_a_batch: (_ONE_WRITER, "detach both a", "attach: rw a"),
    forget_before_closing: (_ONE_WRITER, "demote a", "promote b"),
    decide_before_the_transaction: (
        "two readers",
        "promote a",
        "limit: to 0 a",
    ),
    open_before_the_row: (_ONE_WRITER, "promote b", "detach a"),
    promote_too_early: (_ONE_WRITER, "hand over: from one b", "detach a"),
    unfence_without_a_policy: (_FENCED, "promote b", "unfence a"),
    attach_fenced_hosts: (_ONE_WRITER, "fence a", "attach: rw a"),
    fence_without_the_lock: (_ONE_WRITER, "fence a", "attach: rw a"),
    leave_what_was_begun: (_ONE_WRITER, "demote a", "detach b"),
    leave_handovers: (_ONE_WRITER, "hand over: from one b", "detach a"),
    count_no_leaving_writer: (_ONE_WRITER, "demote: at once a", "promote b"),
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
