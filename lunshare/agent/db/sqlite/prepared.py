# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Statements that are compiled once, and that SQLite's driver runs directly.

For the statements of an attach cycle and of the lists, SQLAlchemy's execution costs
more than SQLite itself: it looks the statement up by a key that it computes each time,
and creates a context and a result. Here SQLAlchemy compiles the statement at its first
use, and its types convert parameters and columns as always.

An error of SQLite is an sqlite3.Error, which ``engine`` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

Row = Sequence[Any]
_Convert = Callable[[Any], Any]


class Prepared:
    """One statement. Its parameters are named; none is a list ("expanding")."""

    def __init__(
        self, statement: sa.Select[Any] | sa.Insert | sa.Update, index: str = ""
    ) -> None:
        """``index``: the one that SQLite has to use for the table of a select."""
        self._statement, self._index = statement, index
        self._compiled: _Compiled | None = None

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> list[Row]:
        """Return all rows of a select, with the columns in their order."""
        plan = self._plan(connection)
        found: list[Row] = plan.run(connection, values).fetchall()
        return [plan.converted(row) for row in found] if plan.columns else found

    def first(self, connection: sa.Connection, values: Mapping[str, Any]) -> Row | None:
        """Return the first row of a select that has few rows, or None."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def write(self, connection: sa.Connection, values: Mapping[str, Any]) -> int:
        """Run an insert or an update; return how many rows it has changed."""
        plan = self._plan(connection)
        plan.check(values)
        done: int = plan.run(connection, values).rowcount
        return done

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
        self._names = frozenset(compiled.binds)
        selected = getattr(statement, "selected_columns", ())
        readers = [
            column.type.dialect_impl(dialect).result_processor(dialect, None)
            for column in selected
        ]
        #: The columns that are converted, and how.
        self.columns: list[tuple[int, _Convert]] = [
            (index, convert) for index, convert in enumerate(readers) if convert
        ]

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse values that the statement would not write.

        :raises KeyError: names them.
        """
        if not values.keys() <= self._names:
            raise KeyError(*sorted(values.keys() - self._names))

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> Any:
        """Return the cursor.

        :raises KeyError: ``values`` lacks a parameter.
        """
        all_values = {**self._own, **values}
        bound = [
            all_values[name] if convert is None else convert(all_values[name])
            for name, convert in self._parameters
        ]
        driver: Any = connection.connection.dbapi_connection
        return driver.execute(self._sql, bound)

    def converted(self, row: Row) -> Row:
        """Return the row with the values of SQLAlchemy's types."""
        values = list(row)
        for index, convert in self.columns:
            values[index] = convert(values[index])
        return values
