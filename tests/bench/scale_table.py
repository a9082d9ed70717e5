# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Put the figures of ``tests.bench.scale`` into docs/fleet.md."""

from __future__ import annotations

import json
from typing import Any

from tests.bench.figures import short
from tests.stands.servers import ROOT

_PAGE = ROOT / "docs/fleet.md"
_BEGIN = "<!-- figures: written by `tests/bench/run scale` -->"
_END = "<!-- end of figures -->"
_PARTS = {
    "reports": "Fake nodes that report, and a storm of 60 creates by 16 clients",
    "node": "One real cinder-volume, one backend of lunshare's driver on fake storage",
    "rows": "A database with a million volumes, 100 nodes that report",
}


def write_page() -> None:
    """Write the tables of all parts that were measured, and keep the other text."""
    before, _, rest = _PAGE.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    tables = ""
    for name, title in _PARTS.items():
        path = ROOT / f"build/bench-scale-{name}.json"
        if path.exists():
            tables += _table(name, title, json.loads(path.read_text()))
    _PAGE.write_text(f"{before}{_BEGIN}\n{tables}\n{_END}{after}")


def _table(name: str, title: str, part: dict[str, Any]) -> str:
    machine = part["machine"]
    lines = [
        f"\n{title} (`tests/bench/run scale {name}`; {machine['cores']} cores,"
        f" Python {machine['python']}):\n",
        *rows(part["figures"]),
    ]
    return "\n".join(lines) + "\n"


def rows(figures: list[dict[str, Any]]) -> list[str]:
    """The lines of a table: ``what, where`` is in row ``what`` and column ``where``."""
    cells: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for figure in figures:
        what, _, where = figure["name"].rpartition(", ")
        cells.setdefault(what, {})[where] = f"{short(figure['value'])} {figure['unit']}"
        columns += [where] if where not in columns else []
    lines = [["", *columns], ["---", *("---:" for _ in columns)]]
    for what, values in cells.items():
        lines.append([what, *(values.get(each, "").strip() for each in columns)])
    return [f"| {' | '.join(line)} |" for line in lines]
