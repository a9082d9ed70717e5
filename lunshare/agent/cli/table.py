# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print rows as a table that awk can split."""

from __future__ import annotations

from collections.abc import Sequence

from lunshare.agent.cli.output import visible

Cell = str | float | bool | None


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table. Each column is as wide as its longest cell; numbers go right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    numeric = [
        bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(head))
    ]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(placed).rstrip()

    return "\n".join([line(head), *map(line, texts)])


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _text(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float) and cell < 1e6:
        return f"{cell:g}"
    return visible(str(cell))
