# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The ratio to the peer, its bound, and the table of docs/performance.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import scale_table, table
from tests.bench.figures import RATE, Figure, write


def test_ratio_says_how_many_times_faster():
    assert Figure("a page", 80.0, "ms", peer=4000.0).ratio == 50
    assert Figure("requests", 1500.0, RATE, peer=60.0).ratio == 25


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("a page", 200.0, "ms", peer=4000.0, times=20), True),
        (Figure("a page", 201.0, "ms", peer=4000.0, times=20), False),
        (Figure("requests", 1200.0, RATE, peer=60.0, times=20), True),
        (Figure("requests", 1199.0, RATE, peer=60.0, times=20), False),
        (Figure("a page whose peer was forgotten", 1.0, "ms", times=20), False),
        (Figure("memory", 81.0, "MiB", most=80, peer=660.0), False),
        (Figure("memory", 80.0, "MiB", most=80, peer=660.0), True),
    ],
)
def test_bound_is_met_or_not(figure, met):
    assert figure.met is met


def test_table_has_the_peers_columns_where_it_was_measured(tmp_path: Path):
    page = Figure("a page", 80.0, "ms", peer=4000.0, times=20)
    alone = Figure("a commit", 0.5, "ms")
    assert _lines(tmp_path, page, alone) == [
        "| what | median | Cinder 29.0.0 | ratio | must be | |",
        "|---|---:|---:|---:|---|---|",
        "| a page | 80 ms | 4,000 ms | 50 | at least 20 times | met |",
        "| a commit | 0.5 ms |  |  |  |  |",
    ]
    assert _lines(tmp_path, alone) == [
        "| what | median | must be | |",
        "|---|---:|---|---|",
        "| a commit | 0.5 ms |  |  |",
    ]


def _lines(tmp_path: Path, *figures: Figure) -> list[str]:
    write(tmp_path / "figures.json", figures)
    rows = json.loads((tmp_path / "figures.json").read_text())["figures"]
    return table.rows(rows)


def test_figures_of_several_places_are_one_row_of_the_table_of_the_fleet(
    tmp_path: Path,
) -> None:
    figures = [
        Figure("one choice, 100 nodes", 95.6, "ms"),
        Figure("creates, 100 nodes", 2.69, "in a second"),
        Figure("one choice, 1,000 nodes", 412.4, "ms"),
    ]
    write(tmp_path / "scale.json", figures)
    kept = json.loads((tmp_path / "scale.json").read_text())["figures"]
    assert scale_table.rows(kept) == [
        "|  | 100 nodes | 1,000 nodes |",
        "| --- | ---: | ---: |",
        "| one choice | 95.6 ms | 412 ms |",
        "| creates | 2.69 in a second |  |",
    ]
