# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Put the figures of a run into build/bench.json and into docs/performance.md.

A part that was not measured keeps its table of an earlier run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.bench.figures import short

ROOT = Path(__file__).resolve().parent.parent.parent
_PAGE = ROOT / "docs/performance.md"
_BEGIN, _END = "<!-- figures: written by `make bench` -->", "<!-- end of figures -->"
_PARTS = (
    ("host", "The control plane alone: this machine, fake backend"),
    ("copies", "Copies beside dd: this machine, files"),
    ("lab", "Attaching on a real kernel: the lab's guest"),
    ("lvm", "Knowing how full LVM is: the lab's guest"),
    ("verbs", "Beside LVM's own commands: the lab's guest"),
    ("lab-copies", "Copies beside dd: the lab's guest"),
    ("quick-lab", "Attaching on a real kernel: the quick guest"),
    ("quick-batch", "A thousand hosts on one LUN: the quick guest"),
    ("quick-lvm", "Knowing how full LVM is: the quick guest"),
    ("quick-verbs", "Beside LVM's own commands: the quick guest"),
    ("quick-verify", "Verifying targets: the quick guest"),
    ("quick-copies", "Copies beside dd: the quick guest"),
    ("cinder", "Beside Cinder's LVM driver, under one cinder-volume: the quick guest"),
)


def main() -> int:
    """0 when every bound is met, else 1."""
    parts: dict[str, Any] = {}
    for name, _ in _PARTS:
        path = ROOT / f"build/bench-{name}.json"
        if path.exists():
            parts[name] = json.loads(path.read_text())
    report = {"command": "make bench", **parts}
    (ROOT / "build/bench.json").write_text(json.dumps(report, indent=1) + "\n")
    before, _, rest = _PAGE.read_text().partition(_BEGIN)
    tables, _, after = rest.partition(_END)
    tables = _text(parts, _earlier(tables))
    _PAGE.write_text(before + _BEGIN + "\n" + tables + _END + after)
    missed = [f for part in parts.values() for f in part["figures"] if not f["met"]]
    for figure in missed:
        print(f"NOT MET: {figure['name']}: {short(figure['value'])} ({figure['must']})")
    return 1 if missed else 0


def _earlier(tables: str) -> dict[str, str]:
    """Return the tables of the page by their titles."""
    found = tables.split("\n### ")[1:]
    return {each.partition("\n")[0]: f"\n### {each}" for each in found}


def _text(parts: dict[str, Any], earlier: dict[str, str]) -> str:
    return "".join(
        _table(title, parts[name]) if name in parts else earlier.get(title, "")
        for name, title in _PARTS
    )


def _table(title: str, part: dict[str, Any]) -> str:
    machine = part["machine"]
    lines = [
        f"\n### {title}\n",
        f"Linux {machine['system']}, {machine['cores']} cores,"
        f" Python {machine['python']}, load {machine['load']} at the end.\n",
        *rows(part["figures"]),
    ]
    return "\n".join(lines) + "\n\n"


def rows(figures: list[dict[str, Any]]) -> list[str]:
    """The lines of a table; the peer's columns only where it was measured."""
    beside = any(figure.get("peer") is not None for figure in figures)
    head, line = ("Cinder 29.0.0 | ratio | ", "---:|---:|") if beside else ("", "")
    return [
        f"| what | median | {head}must be | |",
        f"|---|---:|{line}---|---|",
        *(f"| {' | '.join(_cells(figure, beside))} |" for figure in figures),
    ]


def _cells(figure: dict[str, Any], beside: bool) -> list[str]:
    mark = ("met" if figure["met"] else "**not met**") if figure["must"] else ""
    unit = figure["unit"] or "times"
    cells = [figure["name"], f"{short(figure['value'])} {unit}"]
    if beside and figure.get("peer") is None:
        cells += ["", ""]
    elif beside:
        cells += [f"{short(figure['peer'])} {unit}", short(figure["ratio"])]
    return [*cells, figure["must"], mark]


if __name__ == "__main__":
    sys.exit(main())
