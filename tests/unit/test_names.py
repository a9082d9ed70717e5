# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Names in the product say what a thing is: a noun of the field (decision 0017)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = [ast.parse(file.read_text()) for file in ROOT.glob("lunshare/**/*.py")]

#: Names that say nothing of what they hold.
EMPTY = re.compile(
    "found|each|asked|known|left|seen|given|wanted|held|done|made|taken|gone|its|one"
    "|both|rest|kept|told|read_|written|late"
)
#: How many assignments may have one of them; the aim is 150.
MAX_EMPTY = 100

#: How many functions may be called `of`; the aim is none.
MAX_OF = 0

#: Class names of two classes, a row and what a driver gets of it: none may be added.
REPEATED = {"Snapshot", "Volume"}


def assigned(tree: ast.AST) -> Iterator[str]:
    """The names that it binds: assignments, loops, comprehensions, with, walrus."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_assigned_names_are_counted_wherever_they_are_bound() -> None:
    text = (
        "a = 1; b: int = 2\nfor c, d in e: pass\nwith f as g: pass\n"
        "if h := i: pass\n[j for j in k]\nl.m = n\n"
    )
    assert sorted(assigned(ast.parse(text))) == ["a", "b", "c", "d", "g", "h", "j"]


def test_few_names_say_nothing() -> None:
    names = Counter(
        name for tree in TREES for name in assigned(tree) if EMPTY.fullmatch(name)
    )
    assert names.total() <= MAX_EMPTY, names


def test_few_functions_are_called_of() -> None:
    names = [
        node.name
        for tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert names.count("of") <= MAX_OF


def test_a_class_name_is_used_once() -> None:
    names = Counter(
        node.name
        for tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} <= REPEATED
