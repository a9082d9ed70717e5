# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The time of each regular expression of the root helper is linear in its text.

A quantifier inside a repeated part can backtrack for ever, and it holds the
interpreter: one frame of 70 bytes stopped the helper for all its clients.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lunshare.helper import forms
from lunshare.helper.rules import Rules
from tests.unit.filter_rules import FILTERS
from tests.unit.test_filters import SERVED

# Parts of re that type checkers know or do not know, as other packages use them.
ops: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

ROOT = Path(__file__).parents[2]
SOURCES = [
    *ROOT.glob("lunshare/helper/**/*.py"),
    *ROOT.glob("lunshare/drivers/protocol/*.py"),
    ROOT / "lunshare" / "drivers" / "values.py",
]
_FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall"}
_FUNCTIONS |= {"finditer", "subn"}
# The text of a name in an f-string. Its expression is checked by itself.
_HOLE = "x"


def nested(pattern: str | bytes) -> bool:
    """Whether a part that repeats a variable number of times is inside another one.

    A part that never backtracks (*+, (?>...)) does not count.
    """
    return _nested(parser.parse(pattern), inside=False)


def _nested(parsed: Any, inside: bool) -> bool:
    for op, given in parsed:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            least, most, inner = given
            varies = least != most and most > 1
            if (inside and varies) or _nested(inner, inside or varies):
                return True
        elif any(_nested(inner, inside) for inner in _inner(op, given)):
            return True
    return False


def _inner(op: Any, given: Any) -> Iterator[Any]:
    if op is ops.POSSESSIVE_REPEAT:
        # It never backtracks; the part that it repeats is checked by itself.
        yield given[2]
    elif op is ops.SUBPATTERN:
        yield given[3]
    elif op is ops.BRANCH:
        yield from given[1]
    elif op in (ops.ASSERT, ops.ASSERT_NOT):
        yield given[1]
    elif op is ops.ATOMIC_GROUP:
        yield given


def literals(source: Path) -> Iterator[tuple[int, str | bytes]]:
    """Every text of a module that can be part of an expression: all but docstrings.

    A text can be in a variable first, so all texts of modules that import re count.
    """
    tree = ast.parse(source.read_text())
    docs = {id(text) for node in ast.walk(tree) for text in _docstring(node)}
    for node in ast.walk(tree):
        text = _text(node)
        if text is not None and id(node) not in docs:
            yield node.lineno, text  # type: ignore[attr-defined]


def _docstring(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case (
            ast.Module(body=body) | ast.ClassDef(body=body) | ast.FunctionDef(body=body)
        ):
            if body and isinstance(body[0], ast.Expr):
                yield body[0].value


def _text(node: ast.AST) -> str | bytes | None:
    match node:
        case ast.Constant(value=str(text)) | ast.Constant(value=bytes(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(_text(each) or _HOLE) for each in values)
    return None


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"/dev/([A-Za-z0-9_+:-][A-Za-z0-9_+.:-]*/?)+", True),
        ("(a+)+", True),
        ("(a|b*)*", True),
        ("((ab?)*c)+", True),
        ("(?:a{1,3}){0,9}", True),
        ("(?=(a*)*)", True),
        ("(?:(?:a+)*+)*", True),
        ("(a+)?", False),
        ("(?:-[0-9a-f]{4}){3}", False),
        ("[a-z]*b+c{2,5}", False),
        ("(?:ab++c)*+", False),
    ],
)
def test_a_nested_quantifier_is_found(pattern: str, wrong: bool) -> None:
    assert nested(pattern) is wrong


def test_sources_with_expressions_are_found() -> None:
    assert {"forms.py", "values.py"} <= {source.name for source in SOURCES}


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.name)
def test_expressions_of_the_helper_have_no_nested_quantifier(source: Path) -> None:
    for line, text in literals(source):
        try:
            assert not nested(text), f"{source.name}:{line}: {text!r}"
        except re.error:
            continue  # part of one, or none


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every expression of the filters, as the helper asks it."""
    directory = tmp_path_factory.mktemp("rootwrap.d")
    directory.chmod(0o755)
    for source in FILTERS.iterdir():
        (directory / source.name).write_text(source.read_text())
        (directory / source.name).chmod(0o644)
    rules = Rules(str(directory), [], SERVED)
    return sorted({each for rule in rules._filters for each in rule.args})


def test_filters_have_no_nested_quantifier(patterns: list[str]) -> None:
    assert len(patterns) > 30
    for pattern in patterns:
        assert not nested(pattern), pattern


@pytest.mark.parametrize(
    "unit", ["a", "a-", "0", "/", "a/", "-", "x=4,", "hard,", "volume-"]
)
def test_longest_text_is_matched_quickly(patterns: list[str], unit: str) -> None:
    long = (unit * forms.MAX_TEXT)[: forms.MAX_TEXT - 1] + "!"
    compiled = [re.compile(pattern + "$") for pattern in patterns]
    started = time.process_time()
    for pattern in compiled:
        pattern.match(long)
    assert time.process_time() - started < 1
