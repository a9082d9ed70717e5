# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every call of a service from a handler passes the request context first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANDLERS = ROOT / "lunshare" / "agent" / "api" / "handlers"

#: What belongs to no request: health, names that are the same for everybody, and what
#: is asked with a row that the request may see.
WITHOUT = {
    *("node.health", "node.host_of", "types.resolve", "metrics.page"),
    "hosts.of_attachment",
}


def service_method(node: ast.expr) -> str | None:
    """``volumes.get`` of ``call.services.volumes.get``, else None."""
    text = ast.unparse(node)
    prefix = "call.services."
    return text.removeprefix(prefix) if text.startswith(prefix) else None


def calls(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Each call of a service: the method and its arguments."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (name := service_method(node.value)):
            names[ast.unparse(node.targets[0])] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if name := service_method(node.func) or names.get(called):
                yield name, [ast.unparse(each) for each in node.args]


def test_handlers_pass_the_request_context_to_every_service() -> None:
    found = [
        (file.name, name, arguments)
        for file in HANDLERS.glob("*.py")
        for name, arguments in calls(ast.parse(file.read_text()))
    ]
    assert len(found) > 40
    assert [
        each for each in found if each[1] not in WITHOUT and each[2][:1] != ["call.ctx"]
    ] == []
