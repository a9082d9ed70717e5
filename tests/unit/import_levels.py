# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print the longest chain of imports in a folder: ``python import_levels.py FOLDER``.

A module without imports inside the folder is on level 1. Any other module is one level
above the highest that it imports. It reads only the source, so it works for any commit.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def chains(folder: Path) -> dict[str, list[str]]:
    """Return for each module its longest chain of imports, from itself down."""
    files = {_name(folder, file): file for file in sorted(folder.rglob("*.py"))}
    imports = {name: set(_imports(file, files)) for name, file in files.items()}
    found: dict[str, list[str]] = {}
    for name in imports:
        _chain(name, imports, found)
    return found


def _name(folder: Path, file: Path) -> str:
    """Return the dotted name, without what is above the folder's parent."""
    parts = file.with_suffix("").relative_to(folder.parent.parent).parts
    return ".".join(part for part in parts if part != "__init__")


def _imports(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = node.module.removeprefix("lunshare.")
            for alias in node.names:
                full = f"{module}.{alias.name}"
                name = full if full in known else module
                if name in known and known[name] != file:
                    yield name


def _chain(
    name: str, imports: Mapping[str, set[str]], found: dict[str, list[str]]
) -> list[str]:
    if name not in found:
        below = [_chain(each, imports, found) for each in sorted(imports[name])]
        found[name] = [name, *max(below, key=len, default=[])]
    return found[name]


if __name__ == "__main__":
    longest = max(chains(Path(sys.argv[1]).resolve()).values(), key=len)
    print(len(longest), *longest)
