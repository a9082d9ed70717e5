# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The writers policy of a volume: who may write, and how many at once.

Each of its two texts is a register in the metadata of the volume. Who renames the
volume writes all of its metadata, and so ends the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

from lunshare.drivers.writers import KEYS, MAX_WRITERS, WRITERS
from tests.storm.client import Client
from tests.storm.journal import Journal, Op
from tests.storm.model import Effect, last

Texts = frozenset[str | None]


def limit(client: Client, volume_id: str) -> None:
    """Set a number or a list; it is refused where it excludes who may write now."""
    if client.rng.random() < 1 / 3:
        _set(client, volume_id, WRITERS, _names(client, 0.5))
    else:
        _set(client, volume_id, MAX_WRITERS, str(client.rng.randint(1, 2)))


def name_all(client: Client, volume_id: str) -> None:
    """Set the list of all hosts, which excludes nobody."""
    _set(client, volume_id, WRITERS, _names(client, 1.0))


def _set(client: Client, volume_id: str, key: str, text: str) -> None:
    op = client.begin("limit", volume_id, key=key, text=text)
    asked = {"metadata": {key: text}}
    _note(op, client.post(op, f"volumes/{volume_id}/metadata", asked).good)


def unlimit(client: Client, volume_id: str) -> None:
    """Delete one of the two."""
    key = client.rng.choice(KEYS)
    op = client.begin("limit", volume_id, key=key, text=None)
    _note(op, client.delete(op, f"volumes/{volume_id}/metadata/{key}").good)


def _names(client: Client, part: float) -> str:
    """A part of all hosts, the own ones among them."""
    others = range(client.world.operators)
    numbers = {n for n in others if client.rng.random() < part} | {client.number}
    return ",".join(f"h{n}{letter}" for n in sorted(numbers) for letter in "abc")


def _note(op: Op, is_done: bool) -> None:
    if is_done:
        op.done, op.certain = op.answered, True


def texts(journal: Journal, ident: str, key: str, since: float, until: float) -> Texts:
    """Return what a text of the policy may be between two times; None: not there."""
    effects = [Effect(0.0, 0.0, True, frozenset({None}))]
    for op in journal.of(ident, "limit", "rename"):
        if op.refused or op.given.get("key", key) != key:
            continue
        # Without an answer it has an effect before the daemon is killed, or none.
        done = op.done if op.certain else op.answered
        value = frozenset({op.given["text"] if op.what == "limit" else None})
        effects.append(Effect(op.began, done, op.certain, value))
    return last(effects, since, until)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the policy of a volume certainly was between two times.

    ``most`` writers, if there was such a limit; of ``names``, if there was a list.
    """

    most: int | None
    names: frozenset[str] | None

    def excess(self, hosts: set[str]) -> str | None:
        """Return why these initiators may not write all at once; None if they may."""
        if self.most is not None and len(hosts) > self.most:
            return f"{sorted(hosts)} write, of at most {self.most}"
        if self.names is not None:
            others = {h for h in hosts if h.rpartition(":")[2] not in self.names}
            return (
                f"{sorted(others)} write, and are not on the list" if others else None
            )
        return None


NONE = Limits(None, None)


def limits(journal: Journal, ident: str, since: float, until: float) -> Limits:
    """Return what was certain, whichever of the requests came last."""
    most = texts(journal, ident, MAX_WRITERS, since, until)
    lists = texts(journal, ident, WRITERS, since, until)
    names = frozenset(name for text in lists for name in (text or "").split(","))
    return Limits(
        None if None in most else max(int(text or 0) for text in most),
        None if None in lists else names,
    )
