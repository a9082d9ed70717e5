# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The values that may exist, as a function of only the journal.

The bytes of a volume are registers: one block for each client at each place. A
description is a register too. A register has one of the values that may have been
written last: an effect is impossible if another one certainly came after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.storm.journal import FOREVER, Journal, Op

_CREATIONS = ("create", "clone", "from-snapshot", "manage")


@dataclass(frozen=True, slots=True)
class Effect:
    """What gave a register one of these values, between ``began`` and ``done``."""

    began: float
    done: float
    certain: bool
    values: frozenset[Any]


def last(effects: Iterable[Effect], since: float, until: float) -> frozenset[Any]:
    """The values that a register may have between these two times."""
    begun = [effect for effect in effects if effect.began <= until]
    replaced = [effect for effect in begun if effect.certain and effect.done <= since]
    found: set[Any] = set()
    for effect in begun:
        if not any(o.began >= effect.done and o is not effect for o in replaced):
            found |= effect.values
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Register:
    """The block of a client at a place."""

    client: int
    place: int


class Model:
    """The registers of every volume and snapshot."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[object, frozenset[int]] = {}

    def volume(
        self, ident: str, register: Register, since: float, until: float
    ) -> frozenset[int]:
        """The numbers of the marks that it may have; 0 stands for no mark."""
        key = (ident, register, since, until)
        if key not in self._known:
            self._known[key] = frozenset()  # a volume is not a copy of itself
            effects = self._effects(ident, register)
            self._known[key] = last(effects, since, until)
        return self._known[key]

    def snapshot(self, ident: str, register: Register) -> frozenset[int]:
        """The same for a snapshot: at the time when it was created."""
        for seen in self._journal.of(ident, "seen"):
            return frozenset({seen.given["marks"][register]})
        for op in self._journal.of(ident, "snapshot"):
            if op.given.get("id") == ident:
                return self.volume(op.given["volume"], register, op.began, op.done)
        return frozenset()

    def _effects(self, ident: str, register: Register) -> list[Effect]:
        ops = self._journal.of(ident)
        found = []
        for op in ops:
            values = self._values(op, ident, register)
            if values is not None:
                done = latest_effect(op, ops)
                certain = op.certain or (done < FOREVER and op.what in _CREATIONS)
                found.append(Effect(op.began, done, certain, values))
        return found

    def _values(self, op: Op, ident: str, register: Register) -> frozenset[int] | None:
        """What the operation left in the register of this volume, or None."""
        if op.what in _CREATIONS:
            return (
                self._initial_values(op, register)
                if op.given.get("id") == ident
                else None
            )
        if op.what == "seen":
            return frozenset({op.given["marks"][register]})
        if op.what == "write" and not op.refused:
            mine = (op.given["client"], op.given["place"])
            return (
                frozenset({op.given["number"]})
                if mine == (register.client, register.place)
                else None
            )
        if (
            op.what == "revert"
            and not op.refused
            and not is_snapshot_of_revert(op, ident)
        ):
            return self.snapshot(op.given["snapshot"], register)
        return None

    def _initial_values(self, op: Op, register: Register) -> frozenset[int]:
        if op.what == "clone":
            source = op.given["source_volid"]
            return self.volume(source, register, op.began, op.done)
        if op.what == "from-snapshot":
            return self.snapshot(op.given["snapshot_id"], register)
        if op.what == "manage":
            return self._managed_values(op, register)
        return frozenset({0})

    def _managed_values(self, op: Op, register: Register) -> frozenset[int]:
        reference: str = op.given["reference"]
        for put in self._journal.of(reference, "put"):
            return frozenset({put.given["marks"].get(register, 0)})
        old = reference.removeprefix("unmanaged-")
        return self.volume(old, register, op.began, op.done)


def is_snapshot_of_revert(op: Op, ident: str) -> bool:
    """Whether a revert is filed under this object as its snapshot."""
    return op.given.get("snapshot") == ident


def latest_effect(op: Op, ops: Iterable[Op]) -> float:
    """The latest time at which the effect existed.

    A volume can be attached, and written, only when it has no operation in progress.
    """
    if op.done < FOREVER or op.what == "write":
        return op.done
    after = (
        other.answered
        for other in ops
        if other.what == "attach" and other.accepted and other.began >= op.answered
    )
    return min(after, default=FOREVER)


def descriptions(journal: Journal, ident: str, now: float) -> frozenset[str]:
    """What a volume's description may be."""
    effects = [
        Effect(op.began, op.done, op.certain, frozenset({op.given["text"]}))
        for op in journal.of(ident, "rename")
        if not op.refused
    ]
    initial = Effect(0.0, 0.0, True, frozenset({""}))
    return last([initial, *effects], now, now)
