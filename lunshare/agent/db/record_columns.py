# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which column each field of a record has, and records of rows by these names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from operator import attrgetter
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import sqlalchemy as sa

from lunshare.agent.db.sqlite.prepared import Prepared, Row


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=_Dataclass)


class RecordColumns(Generic[R]):
    """The columns of a record: a select has each under the name of its field.

    They are those of the first fields of the record; the others keep their defaults,
    or are given to ``record``.
    """

    def __init__(
        self,
        record: type[R],
        table: sa.Table,
        last: str = "",
        **columns: sa.Column[Any],
    ) -> None:
        """``columns``: those that do not have the name of their field.

        ``last``: the last field with a column, if that is not the last of all.
        """
        fields = list(record.__dataclass_fields__)
        if last:
            del fields[fields.index(last) + 1 :]
        self._record, self._table, self._renamed = record, table, columns
        self._columns: dict[str, sa.Column[Any]] = {
            name: columns[name] if name in columns else table.c[name] for name in fields
        }
        #: What a select reads.
        self.labels: Sequence[sa.Label[Any]] = [
            column.label(name) for name, column in self._columns.items()
        ]
        # The field of each column that the table itself has.
        self._own = {
            column.key: name
            for name, column in self._columns.items()
            if column.table is table
        }
        # In the order of the record's fields, so that it can be created without names,
        # which would take half as long again.
        self._fields = attrgetter(*fields)
        self._own_fields = attrgetter(*self._own.values())

    def part(self, last: str) -> RecordColumns[R]:
        """Return the columns up to the field ``last``; the others are not read."""
        return RecordColumns(self._record, self._table, last, **self._renamed)

    def prepared(self, statement: sa.Select[Any], index: str = "") -> Prepared:
        """Return a select of these columns and no others, whose rows are records."""
        self._check(column.key for column in statement.selected_columns)
        return Prepared(statement, index, self._record)

    def records(self, result: sa.CursorResult[Any]) -> list[R]:
        """Return the records of a result with these columns and no others."""
        return list(self.iterate(result))

    def iterate(self, result: sa.CursorResult[Any]) -> Iterator[R]:
        """Yield what ``records`` returns; rows that nobody takes are not read."""
        self._check(result.keys())
        return starmap(self._record, result)

    def record(self, row: Row, *rest: Any) -> R:
        """Return the record of a row with more columns; ``rest``: its next fields."""
        return self._record(*self._fields(row), *rest)

    def _check(self, names: Iterable[str | None]) -> None:
        if list(names) != [label.key for label in self.labels]:
            raise AssertionError(f"the columns are not those of {self._record}")

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of fields under the names of their columns.

        A name that is not a field is kept: it is that of a column.
        """
        columns = self._columns
        return {
            columns[name].key if name in columns else name: value
            for name, value in values.items()
        }

    def insertion(self, **columns: Any) -> Prepared:
        """Return the statement that inserts ``values``, and these ``columns``."""
        names = [name for name in self._own if name not in columns]
        parameters: dict[str, Any] = {name: sa.bindparam(name) for name in names}
        return Prepared(sa.insert(self._table).values(parameters | columns))

    def values(self, record: R) -> dict[str, Any]:
        """Return what the table's row of a record has, by column."""
        return dict(zip(self._own, self._own_fields(record), strict=True))
