# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Triggers of SQLite that keep totals equal to the rows that they count.

quota_usage has what each project uses of volumes and snapshots; status_totals has, for
metrics, how many volumes and attachments there are by status. What a row counts for is
a pure function of the row, so no statement that writes one can forget to count, what is
rolled back was never counted, and reading a total costs the same however many rows
there are. Why triggers: docs/decisions/0020-quotas.md.

write_fences counts in the same way how often a host of a volume has lost write access.
"""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.model.states import WANTED

_ADD_USE = """\
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT {row}.project_id, {type}, {counts} WHERE {row}.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
"""

# A project that uses nothing has no row.
_FORGET = """\
  DELETE FROM quota_usage WHERE project_id = OLD.project_id
    AND volumes = 0 AND gigabytes = 0 AND snapshots = 0 AND snapshot_gigabytes = 0;
"""

# A volume that is being retyped counts for the new type already, one that is being
# extended with its new size.
_VOLUME_TYPE = (
    "coalesce(json_extract({row}.intent, '$.type_id'), {row}.volume_type_id, '')"
)
_VOLUME_SIZE = "max({row}.size, coalesce(json_extract({row}.intent, '$.size'), 0))"
_SNAPSHOT_TYPE = "coalesce({row}.volume_type_id, '')"

_USES = {
    "volume": (
        "volumes",
        "deleted, project_id, volume_type_id, size, intent",
        _VOLUME_TYPE,
        _VOLUME_SIZE,
        "{sign}1, {sign}{size}, 0, 0",
    ),
    "snapshot": (
        "snapshots",
        "deleted, project_id, volume_type_id, volume_size",
        _SNAPSHOT_TYPE,
        "{row}.volume_size",
        "0, 0, {sign}1, {sign}{size}",
    ),
}

#: Kind of a total: its table, the column of its group, the column of its status.
KINDS = {
    "volume": ("volumes", "backend", "status"),
    "attachment": ("volume_attachment", "attach_mode", "attach_status"),
}

_ADD_TOTAL = """\
  INSERT INTO status_totals (kind, place, status, count)
  SELECT '{kind}', coalesce({row}.{place}, ''), {row}.{status}, {sign}1
    WHERE {row}.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
"""


_MAY_WRITE = (
    "({row}.deleted = 0 AND {row}.attach_mode IS 'rw' AND {row}.initiator IS NOT NULL"
    " AND {row}.attach_status IN ({wanted}) AND {row}.fence IS NULL)"
)
_LOSES = """\
CREATE TRIGGER IF NOT EXISTS write_fenced AFTER UPDATE OF
  deleted, attach_mode, initiator, attach_status, fence ON volume_attachment
WHEN {before} AND NOT ({after} AND NEW.initiator = OLD.initiator)
BEGIN
  INSERT INTO write_fences (volume_id, generation) VALUES (OLD.volume_id, 1)
  ON CONFLICT (volume_id) DO UPDATE SET generation = generation + 1;
END"""


def fence_trigger() -> str:
    """Return the statement that creates the trigger of write_fences."""
    wanted = ", ".join(f"'{status}'" for status in sorted(WANTED))
    before, after = (
        _MAY_WRITE.format(row=row, wanted=wanted) for row in ("OLD", "NEW")
    )
    return _LOSES.format(before=before, after=after)


def statements() -> list[str]:
    """Return the statements that create the triggers."""
    uses = [text for kind in _USES for text in _use_triggers(kind)]
    totals = [text for kind in KINDS for text in _total_triggers(kind)]
    return [*uses, *totals, fence_trigger()]


def attach(metadata: sa.MetaData) -> None:
    """Create the triggers together with the tables."""
    for text in statements():
        ddl = sa.DDL(text)  # type: ignore[no-untyped-call]
        sa.event.listen(metadata, "after_create", ddl)


def _use_triggers(kind: str) -> list[str]:
    table, columns, _, _, _ = _USES[kind]
    added, removed = _use(kind, "NEW", ""), _use(kind, "OLD", "-")
    changed = (_charge(kind, "OLD"), _charge(kind, "NEW"))
    name = f"quota_{kind}"
    return _pair(
        name, table, columns, changed, added=added, replaced=removed + added + _FORGET
    )


def _total_triggers(kind: str) -> list[str]:
    table, place, status = KINDS[kind]
    columns = ", ".join(("deleted", place, status))
    added, removed = _total(kind, "NEW", ""), _total(kind, "OLD", "-")
    before, after = (
        f"({row}.deleted, {row}.{place}, {row}.{status})" for row in ("OLD", "NEW")
    )
    name = f"status_{kind}"
    return _pair(
        name, table, columns, (before, after), added=added, replaced=removed + added
    )


def _pair(
    name: str,
    table: str,
    columns: str,
    changed: tuple[str, str],
    *,
    added: str,
    replaced: str,
) -> list[str]:
    """Return both triggers of a kind: for a new row, and where ``changed`` differs."""
    before, after = changed
    return [
        f"CREATE TRIGGER {name}_added AFTER INSERT ON {table}\nBEGIN\n{added}END",
        f"CREATE TRIGGER {name}_changed AFTER UPDATE OF {columns} ON {table}\n"
        f"WHEN {before} IS NOT {after}\nBEGIN\n{replaced}END",
    ]


def _charge(kind: str, row: str) -> str:
    """Return the row value of all that decides what a row uses."""
    _, _, type_id, size, _ = _USES[kind]
    parts = f"({{row}}.deleted, {{row}}.project_id, {type_id}, {size})"
    return parts.format(row=row)


def _use(kind: str, row: str, sign: str) -> str:
    _, _, type_id, size, counts = _USES[kind]
    return _ADD_USE.format(
        row=row,
        type=type_id.format(row=row),
        counts=counts.format(sign=sign, size=size.format(row=row)),
    )


def _total(kind: str, row: str, sign: str) -> str:
    _, place, status = KINDS[kind]
    return _ADD_TOTAL.format(kind=kind, row=row, place=place, status=status, sign=sign)
