# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The files and modules that the pages and scripts name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/decisions/*.md")),
]

HOME = ROOT / "lunshare"

#: Where a path of a page may start.
_TOPS = [
    ROOT / top
    for top in (
        ".",
        "lunshare",
        "lunshare/agent",
        "lunshare/agent/service",
        "lunshare/drivers",
        "tests/outside_driver",
    )
]
_FIRST = (
    r"(?:lunshare|tools|agent|drivers|service|api|db|tests|docs|etc|systemd"
    r"|rootwrap\.d|helper|lvm)"
)
_PATH = re.compile(rf"`({_FIRST}/[\w./*-]+)`")
_MODULE = re.compile(r"`(lunshare\.(?:agent|cinder|drivers|helper)\.[\w.*]+)`")


def exists(path: str) -> bool:
    pattern = path.rstrip("/.")
    return any(
        any(top.glob(pattern)) or any(top.glob(f"{pattern}.py")) for top in _TOPS
    )


def module_exists(name: str) -> bool:
    """Whether it is a module, or a module and names in it."""
    parts = name.removeprefix("lunshare.").rstrip(".").split(".")
    for length in range(len(parts), 0, -1):
        module, names = "/".join(parts[:length]), parts[length:]
        for file in (HOME / f"{module}.py", HOME / module / "__init__.py"):
            if file.exists():
                text = file.read_text()
                return all(re.search(rf"\b{each}\b", text) for each in names)
        if exists(module):
            return not names
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_of_the_page_exist(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in _PATH.findall(text) if not exists(path)]
    missing += [name for name in _MODULE.findall(text) if not module_exists(name)]
    assert missing == []


SCRIPTS = [ROOT / "Makefile", ROOT / ".ci/run", ROOT / "tests/beside"]
SCRIPTS += sorted(ROOT.glob("tests/*/run"))


@pytest.mark.parametrize(
    "script", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT))
)
def test_files_and_modules_of_the_script_exist(script: Path) -> None:
    text = script.read_text()
    paths = re.findall(r"(?<![\w/])(tests/[\w./*]+)", text)
    modules = re.findall(r"-m (tests\.[\w.]+)", text)
    paths += [f"{module.replace('.', '/')}.py" for module in modules]
    assert [path for path in paths if not any(ROOT.glob(path.rstrip(".")))] == []
