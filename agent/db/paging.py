# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Filters, sorting and pages, the same for every noun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from agent.errors import Invalid, NotFound
from agent.records import Page

# SQLite takes at most 32,766 parameters in a statement (sqlite.org/limits.html).
_CHUNK = 10_000

Columns = Mapping[str, sa.ColumnElement[Any]]

_OPERATORS = {
    "gt": "__gt__",
    "gte": "__ge__",
    "eq": "__eq__",
    "neq": "__ne__",
    "lt": "__lt__",
    "lte": "__le__",
}


def chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Pieces small enough for one IN list."""
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def filtered(
    query: sa.Select[Any], filters: Mapping[str, Any], columns: Columns
) -> sa.Select[Any]:
    """Narrow a query. A key no column has lets nothing through, as in Cinder.

    A value is matched as it is; a list means any of them; a key ending in
    ``~`` means containing; an (operator, value) pair compares.
    """
    for key, value in filters.items():
        column = columns.get(key.removesuffix("~"))
        if column is None:
            return query.where(sa.false())
        query = query.where(_condition(column, key, value))
    return query


def _condition(
    column: sa.ColumnElement[Any], key: str, value: Any
) -> sa.ColumnElement[bool]:
    if key.endswith("~"):
        return column.contains(str(value), autoescape=True)
    if isinstance(value, tuple):
        condition: sa.ColumnElement[bool] = getattr(column, _OPERATORS[value[0]])(
            value[1]
        )
        return condition
    if isinstance(value, list):
        return column.in_(value)
    return column.is_(None) if value is None else column == value


def paged(
    connection: sa.Connection,
    query: sa.Select[Any],
    page: Page,
    columns: Columns,
    noun: str,
) -> sa.Select[Any]:
    """The query cut to one page; the id breaks ties, so no row is met twice.

    :raises NotFound: the marker is not a row.
    :raises Invalid: a sort key is unknown.
    """
    keys = [_column(columns, name) for name, _ in page.sort] + [columns["id"]]
    downs = [down for _, down in page.sort]
    downs.append(downs[-1] if downs else False)
    if page.marker is not None:
        at = _marker(connection, keys, columns["id"], page.marker, noun)
        query = query.where(_after(keys, downs, at))
    order = [k.desc() if down else k.asc() for k, down in zip(keys, downs, strict=True)]
    return query.order_by(*order).limit(page.limit).offset(page.offset)


def _column(columns: Columns, name: str) -> sa.ColumnElement[Any]:
    try:
        return columns[name]
    except KeyError:
        raise Invalid(
            f"sort key {name!r} is unknown: use one of {', '.join(columns)}"
        ) from None


def _marker(
    connection: sa.Connection,
    keys: list[sa.ColumnElement[Any]],
    id_column: sa.ColumnElement[Any],
    marker: str,
    noun: str,
) -> Sequence[Any]:
    row = connection.execute(sa.select(*keys).where(id_column == marker)).first()
    if row is None:
        raise NotFound(f"marker: {noun}", marker)
    return tuple(row)


def _after(
    keys: list[sa.ColumnElement[Any]], downs: list[bool], at: Sequence[Any]
) -> sa.ColumnElement[bool]:
    """Rows behind the marker's; an empty value sorts first, as in SQLite."""
    choices = []
    for index, (key, down, value) in enumerate(zip(keys, downs, at, strict=True)):
        same = [
            key.is_(None) if at[i] is None else key == at[i]
            for i, key in enumerate(keys[:index])
        ]
        choices.append(sa.and_(*same, _behind(key, down, value)))
    return sa.or_(*choices)


def _behind(
    key: sa.ColumnElement[Any], down: bool, value: Any
) -> sa.ColumnElement[bool]:
    if value is None:
        return sa.false() if down else key.is_not(None)
    return sa.or_(key < value, key.is_(None)) if down else key > value
