# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What survives a kill of a node: its database and its live target.

Both can be read as values that are equal where a node can see no difference, saved, and
put back, also into another node.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lunshare.agent.model.states import AttachStatus
from lunshare.drivers.fake.fake_storage import FakeAcl
from lunshare.drivers.values import Auth, Mode
from tests.stands.node import Node

#: The live target: the mode of each initiator.
Live = dict[str, Mode]
Acl = tuple[Mode, str, Auth | None]

_ROWS = (
    "SELECT id, attached_host, initiator, leaving, former_host, attach_status,"
    " attach_mode, fence, fenced_at IS NOT NULL, answered,"
    " auth_username IS NOT NULL, lease_ends, lease, connection_info"
    " FROM volume_attachment"
    " WHERE NOT deleted AND volume_id = ? ORDER BY created_at, id"
)

#: Tables that attachments, changes of mode and fences write, and which rows count.
_SAVED = {
    "volume_attachment": "NOT deleted",
    "write_fences": "true",
    "host_fences": "true",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What the access of a host depends on; ``id`` is its place among its host's."""

    id: str
    host: str | None
    initiator: str | None
    former: str | None
    former_host: str | None
    status: AttachStatus
    mode: Mode | None
    fence: str | None
    is_closed: bool  # the target has answered that the fence holds
    answered: bool
    has_user: bool
    lease_ends: float | None  # by ``Clock``
    lease: str | None  # who follows; None: there was no lease
    told: str | None  # the mode in connection_info
    uuid: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one volume, and of the fences of hosts."""

    rows: tuple[Row, ...]
    fences: tuple[tuple[str, str, str], ...]
    handover: str
    metadata: str
    seconds: float  # of ``Clock``

    @property
    def lent(self) -> list[Row]:
        """The attachments with a lease of which no row says that it has ended."""
        return [row for row in self.rows if row.lease_ends is not None]

    @property
    def due(self) -> list[Row]:
        """Those of them whose time is over."""
        return [row for row in self.lent if (row.lease_ends or 0.0) <= self.seconds]

    @property
    def most_writers(self) -> int | None:
        """The bound of the writers policy."""
        most = json.loads(self.metadata).get("lunshare:max_writers")
        return None if most is None else int(most)

    @property
    def latest_handover(self) -> Mapping[str, Any]:
        """Without times; the attachments by the ids of rows here."""
        found: Mapping[str, Any] = json.loads(self.handover)
        return found


@dataclass(frozen=True)
class Saved:
    """A node that can be put back."""

    tables: Mapping[str, list[tuple[Any, ...]]]
    metadata: str
    acls: Mapping[str, Acl] | None
    seconds: float


class Clock:
    """The seconds since the boot; they go on where an operation says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class NodeStates:
    """The states of one node with one volume."""

    def __init__(self, node: Node, volume_id: str, clock: Clock) -> None:
        self.node, self.volume_id, self.clock = node, volume_id, clock
        path = node.path / "lunshare.sqlite"
        # Clients use it in turn.
        self._sqlite = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )
        self._sqlite.execute("PRAGMA synchronous = OFF")
        self._seen: tuple[int, Rows] | None = None

    def close(self) -> None:
        self._sqlite.close()

    def rows(self) -> Rows:
        """Read the database, if it was written since it was read last."""
        [version] = self._sqlite.execute("PRAGMA data_version").fetchone()
        if self._seen is None or self._seen[0] != version:
            self._seen = version, self._read()
        if self._seen[1].seconds != self.clock.now:
            self._seen = version, self._read()
        return self._seen[1]

    def _read(self) -> Rows:
        names: dict[str, str] = {}
        found: list[Row] = []
        for ident, host, *values, lease, info in self._sqlite.execute(
            _ROWS, (self.volume_id,)
        ):
            names[ident] = f"{host}-{sum(row.host == host for row in found)}"
            told = json.loads(info)["access_mode"] if info else None
            lent = lease and str(json.loads(lease)["then"])
            fields: list[Any] = [names[ident], host, *values, lent, told, ident]
            found.append(Row(*fields))
        fences = self._sqlite.execute(
            "SELECT name, host, fence FROM host_fences ORDER BY name, host"
        ).fetchall()
        return Rows(
            tuple(found),
            tuple(fences),
            self._handover(names),
            self._metadata(),
            self.clock.now,
        )

    def _handover(self, names: Mapping[str, str]) -> str:
        found = self._sqlite.execute(
            "SELECT handover FROM write_fences WHERE volume_id = ?", (self.volume_id,)
        ).fetchone()
        state = json.loads(found[0]) if found and found[0] else {}
        if state.get("status") in ("done", "failed"):
            return "{}"  # nothing reads it but who shows it
        shown = {
            key: state.get(key)
            for key in ("status", "to", "source", "force", "from", "pending")
        }
        text = json.dumps(shown)
        for ident, name in names.items():
            text = text.replace(ident, name)
        return text if state else "{}"

    def _metadata(self) -> str:
        [text] = self._sqlite.execute(
            "SELECT metadata FROM volumes WHERE id = ?", (self.volume_id,)
        ).fetchone()
        return str(text)

    def ids(self) -> dict[str, str]:
        """The attachments of each host, by the names that ``rows`` gives them."""
        return {row.id: row.uuid for row in self.rows().rows}

    def generation(self) -> int:
        """The fencing generation of the volume."""
        found = self._sqlite.execute(
            "SELECT generation FROM write_fences WHERE volume_id = ?", (self.volume_id,)
        ).fetchone()
        return int(found[0]) if found else 0

    def live(self) -> Live:
        """The access that hosts have now."""
        storage = self.node.target().storage
        with storage.lock:
            acls = storage.exports.get(self.volume_id, {})
            return {initiator: acl.mode for initiator, acl in sorted(acls.items())}

    def save(self) -> Saved:
        tables = {
            table: self._sqlite.execute(
                f"SELECT * FROM {table} WHERE {which}"
            ).fetchall()
            for table, which in _SAVED.items()
        }
        acls = self.node.target().storage.exports.get(self.volume_id)
        kept = acls if acls is None else _kept(acls)
        return Saved(tables, self._metadata(), kept, self.clock.now)

    def restore(self, saved: Saved) -> None:
        """Put it back. Triggers count the rows of attachments.

        What the node has verified is in its memory, and a reconcile depends on it.
        """
        self.node.services.verifier.forget_others(())
        run, exports = self._sqlite.execute, self.node.target().storage.exports
        run("BEGIN IMMEDIATE")
        for table in _SAVED:
            run(f"DELETE FROM {table}")
        for table, rows in saved.tables.items():
            for row in rows:
                run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        run("UPDATE volumes SET metadata = ?", (saved.metadata,))
        run("COMMIT")
        self._seen, self.clock.now = None, saved.seconds
        exports.pop(self.volume_id, None)
        if saved.acls is not None:
            exports[self.volume_id] = dict(_acls(saved))


def _kept(acls: Mapping[str, FakeAcl]) -> dict[str, Acl]:
    return {name: (a.mode, a.attachment_id, a.auth) for name, a in acls.items()}


def _acls(saved: Saved) -> Iterator[tuple[str, FakeAcl]]:
    for initiator, (mode, attachment_id, auth) in (saved.acls or {}).items():
        acl = FakeAcl(attachment_id, auth)
        acl.mode = mode
        yield initiator, acl
