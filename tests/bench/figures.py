# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Figures: what was measured, in which unit, and its bound."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One number. ``most`` and ``least`` are its bounds."""

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def must(self) -> str:
        """The bound as the table shows it."""
        if self.most is not None:
            return f"at most {short(self.most)}"
        return "" if self.least is None else f"at least {short(self.least)}"

    @property
    def met(self) -> bool:
        """Whether the bound is met; True without one."""
        high = self.most is not None and self.value > self.most
        low = self.least is not None and self.value < self.least
        return not high and not low


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
    rows = [asdict(f) | {"must": f.must, "met": f.met} for f in figures]
    report = {"machine": machine, **about, "figures": rows}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def say(figure: Figure) -> Figure:
    """Print a figure and return it."""
    verdict = "" if not figure.must else ("met" if figure.met else "NOT MET")
    bound = f"({figure.must}: {verdict})" if verdict else ""
    print(f"  {figure.name:<58}{short(figure.value):>9} {figure.unit} {bound}")
    return figure
