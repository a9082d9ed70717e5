# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Statements that are compiled once, and that SQLite's driver runs directly.

For the statements of an attach cycle and of the lists, SQLAlchemy's execution costs
more than SQLite itself: it looks the statement up by a key that it computes each time,
and creates a context and a result. Here SQLAlchemy compiles the statement at its first
use, and its types convert parameters and columns as always.

A row of a select is a named tuple, whose columns are read by their names. An error of
SQLite is an sqlite3.Error, which ``engine`` translates.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import sqlalchemy as sa

#: A record, a named tuple or a row of SQLAlchemy: its attributes have the columns.
Row = Any
#: The class of the rows, created of their columns; None for a named tuple.
Record = Callable[..., Row] | None
_Convert = Callable[[Any], Any]


def named(result: sa.CursorResult[Any], record: Record = None) -> Iterator[Row]:
    """Yield the rows of a result of SQLAlchemy as ``Prepared.iterate`` does.

    To read all columns of such a row takes 1 us instead of 13 for 25 columns.
    """
    return _rows(result, record, tuple(result.keys()))


@functools.lru_cache
def _named_tuple(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names)


def _rows(
    columns: Iterable[Sequence[Any]], record: Record, names: tuple[str, ...]
) -> Iterator[Row]:
    if record is not None:
        return starmap(record, columns)
    return map(_named_tuple(names)._make, columns)


class Prepared:
    """One statement. Its parameters are named; none is a list ("expanding")."""

    def __init__(
        self,
        statement: sa.SelectBase | sa.Insert | sa.Update,
        index: str = "",
        record: Record = None,
    ) -> None:
        """``index``: the one that SQLite has to use for the table of a select."""
        self._statement, self._index, self._record = statement, index, record
        self._compiled: _Compiled | None = None

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> list[Row]:
        """Return all rows of a select."""
        return list(self.iterate(connection, values))

    def iterate(
        self, connection: sa.Connection, values: Mapping[str, Any]
    ) -> Iterator[Row]:
        """Yield the rows of a select; those that nobody takes are not read."""
        plan = self._plan(connection)
        columns = plan.run(connection, values)
        if plan.converters:
            columns = map(plan.converted, columns)
        return _rows(columns, self._record, plan.names)

    def first(self, connection: sa.Connection, values: Mapping[str, Any]) -> Row | None:
        """Return the first row of a select that has few rows, or None."""
        rows = self.rows(connection, values)
        return rows[0] if rows else None

    def write(self, connection: sa.Connection, *rows: Mapping[str, Any]) -> int:
        """Run an insert or an update for each row; return how many have changed."""
        plan = self._plan(connection)
        for values in rows:
            plan.check(values)
        count: int = plan.run_each(connection, rows).rowcount
        return count

    def _plan(self, connection: sa.Connection) -> _Compiled:
        if self._compiled is None:
            self._compiled = _Compiled(self._statement, connection.dialect, self._index)
        return self._compiled


class _Compiled:
    """The SQL text, and how to convert parameters and columns."""

    def __init__(self, statement: Any, dialect: sa.Dialect, index: str) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        if compiled.post_compile_params:
            raise AssertionError(f"a list is not possible here: {compiled}")
        self._sql = str(compiled)
        if index:  # SQLAlchemy has no hints for SQLite
            self._sql = self._sql.replace("\nWHERE", f"INDEXED BY {index}\nWHERE", 1)
        #: The values that the statement itself has.
        self._own = {
            name: bound.effective_value
            for name, bound in compiled.binds.items()
            if not bound.required
        }
        self._parameters: list[tuple[str, _Convert | None]] = [
            (
                name,
                compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect),
            )
            for name in compiled.positiontup or ()
        ]
        self._parameter_names = frozenset(compiled.binds)
        selected = list(getattr(statement, "selected_columns", ()))
        #: Those of the columns of a select.
        self.names = tuple(column.key for column in selected)
        readers = [
            column.type.dialect_impl(dialect).result_processor(dialect, None)
            for column in selected
        ]
        #: The columns that are converted, and how.
        self.converters: list[tuple[int, _Convert]] = [
            (index, convert) for index, convert in enumerate(readers) if convert
        ]

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse values that the statement would not write.

        :raises KeyError: names them.
        """
        if not values.keys() <= self._parameter_names:
            raise KeyError(*sorted(values.keys() - self._parameter_names))

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> Any:
        """Return the cursor.

        :raises KeyError: ``values`` lacks a parameter.
        """
        driver: Any = connection.connection.dbapi_connection
        return driver.execute(self._sql, self._bound(values))

    def run_each(
        self, connection: sa.Connection, rows: Iterable[Mapping[str, Any]]
    ) -> Any:
        """Return the cursor after the last of these rows; raise as ``run``."""
        driver: Any = connection.connection.dbapi_connection
        return driver.executemany(self._sql, map(self._bound, rows))

    def _bound(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the parameters in the order of the SQL text; raise as ``run``."""
        all_values = {**self._own, **values}
        return [
            all_values[name] if convert is None else convert(all_values[name])
            for name, convert in self._parameters
        ]

    def converted(self, columns: Sequence[Any]) -> Sequence[Any]:
        """Return the values that SQLAlchemy's types have for them."""
        values = list(columns)
        for index, convert in self.converters:
            values[index] = convert(values[index])
        return values
