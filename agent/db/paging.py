# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Filters, sorting and pages, the same for every noun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import Page

_CHUNK = 256

Columns = Mapping[str, sa.ColumnElement[Any]]
Sort = tuple[tuple[str, bool], ...]

#: How many orders a noun keeps the statement of: clients use a handful.
SORTS = 64

#: The page's project, in a query that is kept.
PROJECT: sa.BindParameter[str] = sa.bindparam("_project", type_=sa.String)
_LIMIT: sa.BindParameter[int] = sa.bindparam("_limit", type_=sa.Integer)
_OFFSET: sa.BindParameter[int] = sa.bindparam("_offset", type_=sa.Integer)

_OPERATORS = {
    "gt": "__gt__",
    "gte": "__ge__",
    "eq": "__eq__",
    "neq": "__ne__",
    "lt": "__lt__",
    "lte": "__le__",
}


def chunks(values: Sequence[str]) -> Iterator[dict[str, str]]:
    """Parameters for IN lists of a few lengths, so that a few statements do.

    A piece is filled up to a power of two with its last value.
    """
    for start in range(0, len(values), _CHUNK):
        some = values[start : start + _CHUNK]
        length = 1 << (len(some) - 1).bit_length()
        filled = [*some, *[some[-1]] * (length - len(some))]
        yield dict(zip(names(length), filled, strict=True))


def names(count: int) -> list[str]:
    """The names of the parameters in such a list."""
    return [f"_{number}" for number in range(count)]


def filtered(
    query: sa.Select[Any], filters: Mapping[str, Any], columns: Columns
) -> sa.Select[Any]:
    """Narrow a query. A key no column has lets nothing through, as in Cinder.

    A value is matched as it is; a list means any of them; a key ending in
    ``~`` means containing; (operator, value) pairs compare, and all must hold.
    """
    for key, value in filters.items():
        column = columns.get(key.removesuffix("~"))
        if column is None:
            return query.where(sa.false())
        query = query.where(_condition(column, key, value))
    return query


def with_metadata(
    query: sa.Select[Any], wanted: Mapping[str, str] | None, column: sa.Column[Any]
) -> sa.Select[Any]:
    """Narrow a query to rows whose metadata, in ``column``, has all of ``wanted``."""
    for key, value in (wanted or {}).items():
        item = sa.func.json_each(column).table_valued("key", "value").c
        query = query.where(sa.exists().where(item.key == key, item.value == value))
    return query


def _condition(
    column: sa.ColumnElement[Any], key: str, value: Any
) -> sa.ColumnElement[bool]:
    if key.endswith("~"):
        return column.contains(str(value), autoescape=True)
    if isinstance(value, tuple):
        return sa.and_(*(getattr(column, _OPERATORS[op])(than) for op, than in value))
    if isinstance(value, list):
        return column.in_(value)
    return column.is_(None) if value is None else column == value


def ordered(query: sa.Select[Any], sort: Sort, columns: Columns) -> sa.Select[Any]:
    """The query sorted and cut to a page, whose ``values`` it is run with.

    The id breaks ties, so no row is met twice.

    :raises Invalid: a sort key is unknown.
    """
    keys, downs = _keys(sort, columns)
    order = [k.desc() if down else k.asc() for k, down in zip(keys, downs, strict=True)]
    return query.order_by(*order).limit(_LIMIT).offset(_OFFSET)


def values(page: Page) -> dict[str, Any]:
    """What an ordered query is run with."""
    shown = {_LIMIT.key: page.limit, _OFFSET.key: page.offset}
    return {**shown, PROJECT.key: page.project_id}


def behind_marker(
    connection: sa.Connection,
    query: sa.Select[Any],
    page: Page,
    columns: Columns,
    noun: str,
) -> sa.Select[Any]:
    """The query without the rows up to the page's marker, if it has one.

    :raises NotFound: the marker is not a row.
    """
    if page.marker is None:
        return query
    keys, downs = _keys(page.sort, columns)
    at = _marker(connection, keys, columns["id"], page.marker, noun)
    return query.where(_after(keys, downs, at))


def _keys(
    sort: Sort, columns: Columns
) -> tuple[list[sa.ColumnElement[Any]], list[bool]]:
    keys = [_column(columns, name) for name, _ in sort] + [columns["id"]]
    downs = [down for _, down in sort]
    downs.append(downs[-1] if downs else False)
    return keys, downs


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
            key.is_(None) if at[i] is None else key == sa.literal(at[i], key.type)
            for i, key in enumerate(keys[:index])
        ]
        choices.append(sa.and_(*same, _behind(key, down, value)))
    return sa.or_(*choices)


def _behind(
    key: sa.ColumnElement[Any], down: bool, value: Any
) -> sa.ColumnElement[bool]:
    if value is None:
        return sa.false() if down else key.is_not(None)
    # As a parameter: SQLAlchemy orders nothing by a plain True or False.
    than = sa.literal(value, key.type)
    return sa.or_(key < than, key.is_(None)) if down else key > than
