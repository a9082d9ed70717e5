# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Triggers of SQLite that keep quota_usage equal to the rows of volumes and snapshots.

What a row uses is a pure function of the row, so no statement that writes one can
forget to count, and what is rolled back was never counted. Why triggers:
docs/decisions/0020-quotas.md.
"""

from __future__ import annotations

import sqlalchemy as sa

_ADD = """\
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

_KINDS = {
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


def statements() -> list[str]:
    """Return the statements that create the triggers."""
    return [text for kind in _KINDS for text in _triggers(kind)]


def _triggers(kind: str) -> list[str]:
    table, columns, _, _, _ = _KINDS[kind]
    before, after = _charge(kind, "OLD"), _charge(kind, "NEW")
    return [
        f"CREATE TRIGGER quota_{kind}_added AFTER INSERT ON {table}\n"
        f"BEGIN\n{_count(kind, 'NEW', '')}END",
        f"CREATE TRIGGER quota_{kind}_changed AFTER UPDATE OF {columns} ON {table}\n"
        f"WHEN {before} IS NOT {after}\n"
        f"BEGIN\n{_count(kind, 'OLD', '-')}{_count(kind, 'NEW', '')}{_FORGET}END",
    ]


def _charge(kind: str, row: str) -> str:
    """Return the row value of all that decides what a row uses."""
    _, _, type_id, size, _ = _KINDS[kind]
    parts = f"({{row}}.deleted, {{row}}.project_id, {type_id}, {size})"
    return parts.format(row=row)


def _count(kind: str, row: str, sign: str) -> str:
    _, _, type_id, size, counts = _KINDS[kind]
    return _ADD.format(
        row=row,
        type=type_id.format(row=row),
        counts=counts.format(sign=sign, size=size.format(row=row)),
    )


def attach(metadata: sa.MetaData) -> None:
    """Create the triggers together with the tables."""
    for text in statements():
        ddl = sa.DDL(text)  # type: ignore[no-untyped-call]
        sa.event.listen(metadata, "after_create", ddl)
