# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""/readyz ends a sentence at its first path: each has its reason before that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent.api.handlers import health
from lunshare.drivers import errors

ROOT = Path(__file__).resolve().parents[2] / "lunshare"
PATH = "nas:/srv/secret"
REASONS = {"why": "REASON", "stderr": "REASON", "seconds": 77.0, "user": "REASON"}
OTHERS = {"argv": ("mount", PATH), "exit_code": 5, "volume_id": "1", "snapshot_id": "1"}

#: Raised by requests only: no health check and no reconcile shows them.
OF_REQUESTS = {"NoSpace", "UnknownReference", "CopyDiffers", "InvalidValue"}
#: The value of a placeholder that ends with one of these is a path.
IS_PATH = re.compile(r"(\b|_)(source|point|path|device|directory)$|^[A-Z_]*MACHINE_ID$")
#: What raises a sentence; "what" is the name of one that is raised later.
RAISED = re.compile(r"(Misconfigured|StorageLost|DriverError|DeadlineExceeded)$")


def _shown(sentence: str) -> str:
    (shown,) = health._few([sentence])
    return shown


def _classes(kind: type[errors.DriverError]) -> Iterator[type[errors.DriverError]]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _classes(derived)


KINDS = sorted(
    {
        kind
        for kind in _classes(errors.DriverError)
        if kind.__module__ == errors.__name__ and REASONS.keys() & {*kind.FIELDS}
        if kind.__name__ not in OF_REQUESTS
    },
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_about_a_path_has_its_reason_before(
    kind: type[errors.DriverError],
) -> None:
    """Of the errors that a part of lunshare raises with a path in another field."""
    others = {**OTHERS, "what": "the probe of a share"}
    values = {name: {**REASONS, **others}.get(name, PATH) for name in kind.FIELDS}
    sentence = str(kind(**values))
    assert re.search("REASON|77", _shown(sentence)), sentence


def _sentences() -> Iterator[tuple[str, ast.JoinedStr]]:
    """The sentences that drivers and helper raise, or name ``what`` or ``many``.

    Not those about a line of nfs_shares_config: they begin with that option.
    """
    folders = ("drivers/lvm", "drivers/nfs", "drivers/targets", "helper/nfs")
    for file in (each for name in folders for each in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            text = _sentence_of(node)
            if isinstance(text, ast.JoinedStr):
                yield f"{file.relative_to(ROOT)}:{text.lineno}", text


def _sentence_of(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Call(func=kind, args=[text, *_]) if RAISED.search(ast.unparse(kind)):
            return text
        case ast.Assign(targets=[ast.Name(id="what" | "many")], value=text):
            return text
    return None


def _before_path(text: ast.JoinedStr) -> str | None:
    """What the sentence says before its first path; None if it has none."""
    said = ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            if IS_PATH.search(ast.unparse(part.value)):
                return said
            said += "{}"
        else:
            said += str(ast.literal_eval(part))
    return None


def test_a_raised_sentence_says_what_is_wrong_before_its_path() -> None:
    """A subject alone, such as "share", is no reason."""
    sentences = list(_sentences())
    assert len(sentences) > 20
    before = {where: _before_path(text) for where, text in sentences}
    wrong = {
        where: said
        for where, said in before.items()
        if said is not None and len(said.split()) < 3
    }
    assert not wrong
