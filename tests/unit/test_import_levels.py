# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The longest chains of imports inside a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.import_levels import chains

FILES = {
    "a/service/top.py": "from lunshare.a.service import middle\nimport os\n",
    "a/service/middle.py": "from lunshare.a.service.deep.bottom import name\n",
    "a/service/deep/__init__.py": "",
    "a/service/deep/bottom.py": "from lunshare.a.other import outside\n",
}


def test_a_module_is_one_level_above_those_that_it_imports(tmp_path: Path) -> None:
    for name, text in FILES.items():
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    found = chains(tmp_path / "a" / "service")
    assert {name: len(chain) for name, chain in found.items()} == {
        "a.service.top": 3,
        "a.service.middle": 2,
        "a.service.deep": 1,
        "a.service.deep.bottom": 1,
    }
    assert found["a.service.top"][-1] == "a.service.deep.bottom"


@pytest.mark.parametrize(("folder", "levels"), [("api", 11), ("service", 7)])
def test_chains_of_imports_are_short(folder: str, levels: int) -> None:
    root = Path(__file__).resolve().parents[2] / "lunshare" / "agent" / folder
    longest = max(chains(root).values(), key=len)
    assert len(longest) <= levels, longest
