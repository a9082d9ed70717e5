# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Figures: what was measured, in which unit, and its bound."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

RATE = "requests/s"


@dataclass(frozen=True)
class Figure:
    """One number, and the peer's beside it where the peer was measured too.

    ``most`` and ``least`` are bounds of the value, ``times`` is the least ratio.
    """

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None
    peer: float | None = None
    times: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer: faster, or less of it."""
        if self.peer is None:
            return None
        more_is_better = self.unit == RATE
        return self.value / self.peer if more_is_better else self.peer / self.value

    @property
    def must(self) -> str:
        """The bounds as the table shows them."""
        bounds = (
            ("at most {}", self.most),
            ("at least {}", self.least),
            ("at least {} times", self.times),
        )
        return ", ".join(
            words.format(short(bound)) for words, bound in bounds if bound is not None
        )

    @property
    def met(self) -> bool:
        """Whether each bound is met; True without one."""
        high = self.most is not None and self.value > self.most
        low = self.least is not None and self.value < self.least
        slow = self.times is not None and (self.ratio or 0) < self.times
        return not high and not low and not slow

    @property
    def beside(self) -> str:
        """The peer's number and the ratio, in words; empty without one."""
        if self.peer is None or self.ratio is None:
            return ""
        return f"Cinder {short(self.peer)}, ratio {short(self.ratio)}"


def short(value: float) -> str:
    """A number with three significant digits; thousands have all digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def median_ms(times: Iterable[float]) -> float:
    """The median of seconds, in milliseconds."""
    return statistics.median(times) * 1000


def timed(work: Callable[[], object]) -> float:
    """The duration of ``work`` in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write(path: Path, figures: Iterable[Figure], **about: object) -> None:
    """Write the figures of one run, and facts about the machine."""
    machine = {
        "system": platform.release(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
    rows = [
        asdict(f) | {"ratio": f.ratio, "must": f.must, "met": f.met} for f in figures
    ]
    report = {"machine": machine, **about, "figures": rows}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def part_parser(part: str) -> argparse.ArgumentParser:
    """The options of a part that is measured in a guest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default=part, help="its table in docs/performance.md")
    return parser


def write_part(part: str, figures: Iterable[Figure]) -> None:
    """Write bench-PART.json into the repository's build/, from a guest."""
    write(Path(f"/build/bench-{part}.json"), figures)


def say(figure: Figure) -> Figure:
    """Print a figure and return it."""
    verdict = "" if not figure.must else ("met" if figure.met else "NOT MET")
    bound = f"({figure.must}: {verdict})" if verdict else ""
    words = (figure.unit, figure.beside, bound)
    shown = " ".join(filter(None, words))
    print(f"  {figure.name:<58}{short(figure.value):>9} {shown}", flush=True)
    return figure
