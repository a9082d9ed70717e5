# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the installed pages and units point at is installed with them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = Path("share/doc/lunshare")

_LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def installed() -> dict[Path, Path]:
    """Each file that the wheel installs beside the packages, and its source."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found: dict[Path, Path] = {}
    for directory, patterns in setup["options.data_files"].items():
        for pattern in patterns.split():
            sources = list(ROOT.glob(pattern))
            assert sources, f"setup.cfg installs {pattern}, which is not there"
            found |= {Path(directory, source.name): source for source in sources}
    return found


def test_links_of_installed_pages_lead_to_installed_pages() -> None:
    files = installed()
    directories = {directory for file in files for directory in file.parents}
    checked = 0
    for page, source in files.items():
        if page.suffix != ".md":
            continue
        for link in _LINK.findall(source.read_text()):
            if "://" in link:
                continue
            there = Path(*_plain((page.parent / link).parts))
            assert there in files or there in directories, f"{page} links to {link}"
            checked += 1
    assert checked > 10


def test_pages_named_by_units_are_installed() -> None:
    files = installed()
    for source in files.values():
        named = re.findall(r"file:/opt/lunshare/(\S+)", source.read_text())
        assert all(Path(each) in files for each in named), f"{source}: {named}"
    assert PAGES / "docs/operations.md" in files


def _plain(parts: tuple[str, ...]) -> list[str]:
    plain: list[str] = []
    for part in parts:
        if part == "..":
            plain.pop()
        elif part != ".":
            plain.append(part)
    return plain
