# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Filters, order and pages, the same for every resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.sqlite.prepared import Prepared, Row
from lunshare.agent.model.errors import Invalid, existing
from lunshare.agent.model.records import Page

_CHUNK = 256
#: Whole rows that are read at once, each with up to 0.4 MB.
_ROWS = 8
#: The orders that an index of each table has.
_INDEXED = ((("created_at", True),), (("created_at", False),))

Columns = Mapping[str, sa.ColumnElement[Any]]
Sort = tuple[tuple[str, bool], ...]

#: Orders whose statements are cached per resource. Clients use only a few.
SORTS = 64

#: The project of the page, a parameter of cached statements.
PROJECT: sa.BindParameter[str] = sa.bindparam("_project", type_=sa.String)
#: The ids of rows, a parameter of a list.
IDS = "_ids"
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
    """Yield parameters for IN lists of few lengths, so that few statements suffice.

    A list is filled up to a power of two with its last value.
    """
    for start in range(0, len(values), _CHUNK):
        some = values[start : start + _CHUNK]
        length = 1 << (len(some) - 1).bit_length()
        filled = [*some, *[some[-1]] * (length - len(some))]
        yield dict(zip(names(length), filled, strict=True))


def names(count: int) -> list[str]:
    """Return the names of the parameters of such a list."""
    return [f"_{number}" for number in range(count)]


def filtered(
    query: sa.Select[Any], filters: Mapping[str, Any], columns: Columns
) -> sa.Select[Any]:
    """Add filters to a query. An unknown key matches nothing, as in Cinder.

    A value must be equal; a list means any of its values; a key that ends in ``~``
    means contains; of (operator, value) pairs all must hold.
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
    """Select only rows whose metadata, in ``column``, has all of ``wanted``.

    The metadata of a row is parsed once, however many items are wanted.
    """
    if not wanted:
        return query
    item = sa.func.json_each(column).table_valued("key", "value").c
    pair = sa.tuple_(item.key, item.value).in_(list(wanted.items()))
    count = sa.select(sa.func.count()).where(pair).scalar_subquery()
    return query.where(count == len(wanted))


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
    """Return the query with order and page; ``values`` are its parameters.

    Rows with equal keys are ordered by id, so no row is on two pages.

    :raises Invalid: a sort key is unknown.
    """
    keys, downs = _keys(sort, columns)
    order = [k.desc() if down else k.asc() for k, down in zip(keys, downs, strict=True)]
    return query.order_by(*order).limit(_LIMIT).offset(_OFFSET)


def values(page: Page) -> dict[str, Any]:
    """Return the parameters of an ordered query."""
    shown = {_LIMIT.key: page.limit, _OFFSET.key: page.offset}
    return {**shown, PROJECT.key: page.project_id}


def in_order(
    connection: sa.Connection,
    query: sa.Select[Any],
    page: Page,
    ident: sa.Column[str],
    by_ids: Prepared,
) -> Iterator[Row]:
    """Yield the rows of an ordered query, those that nobody takes unread.

    ``by_ids`` reads the rows with IDS, and ``ident`` has the id. SQLite would sort
    whole rows, as far as no index has their order: a page of the names of 1,000 volumes
    with full metadata took 6.8 s. So it sorts ids, and the rows are read by these.
    """
    result = connection.execute(query.with_only_columns(ident), values(page))
    ids = list(result.scalars())
    for start in range(0, len(ids), _ROWS):
        chunk = ids[start : start + _ROWS]
        rows = {row.id: row for row in by_ids.iterate(connection, {IDS: chunk})}
        yield from (rows[row_id] for row_id in chunk)


def is_indexed(page: Page) -> bool:
    """Whether an index has the rows of the page in its order."""
    return page.sort in _INDEXED and not page.filters


def after_marker(
    connection: sa.Connection,
    query: sa.Select[Any],
    page: Page,
    columns: Columns,
    resource: str,
    *own: sa.ColumnElement[bool],
) -> sa.Select[Any]:
    """Return the query without the rows up to the marker, if the page has one.

    ``own``: which rows belong to PROJECT. A marker of another project does not exist.

    :raises NotFound: the marker does not exist.
    """
    if page.marker is None:
        return query
    keys, downs = _keys(page.sort, columns)
    marker = sa.select(*keys).where(columns["id"] == page.marker)
    if page.project_id is not None:
        marker = marker.where(*own)
    row = connection.execute(marker, {PROJECT.key: page.project_id}).first()
    at = existing(row, f"marker: {resource}", page.marker)
    return query.where(_after(keys, downs, tuple(at)))


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


def _after(
    keys: list[sa.ColumnElement[Any]], downs: list[bool], at: Sequence[Any]
) -> sa.ColumnElement[bool]:
    """Select rows after the marker; an empty value is first, as in SQLite."""
    choices = []
    for index, (key, down, value) in enumerate(zip(keys, downs, at, strict=True)):
        same = [
            key.is_(None) if at[i] is None else key == sa.literal(at[i], key.type)
            for i, key in enumerate(keys[:index])
        ]
        choices.append(sa.and_(*same, _greater(key, down, value)))
    return sa.or_(*choices)


def _greater(
    key: sa.ColumnElement[Any], down: bool, value: Any
) -> sa.ColumnElement[bool]:
    if value is None:
        return sa.false() if down else key.is_not(None)
    # A parameter, since SQLAlchemy cannot compare with a plain True or False.
    than = sa.literal(value, key.type)
    return sa.or_(key < than, key.is_(None)) if down else key > than
