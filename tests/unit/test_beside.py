# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What runs the parts of ``make test``: one that fails keeps no other from running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BESIDE = Path(__file__).resolve().parents[1] / "beside"
MAKEFILE = """\
good-%:
\t@echo $@ writes; echo $@ >>order
bad-%:
\t@echo $@ says why; echo $@ >>order; false
"""


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    tree.joinpath("Makefile").write_text(MAKEFILE)
    command = [sys.executable, str(BESIDE), *words]
    return subprocess.run(
        command, cwd=tree, check=False, capture_output=True, text=True
    )


def test_a_failing_target_keeps_no_other_one_from_running(tmp_path: Path) -> None:
    result = run(tmp_path, "bad-1,good-1", "good-2", "--next", "bad-2,good-3")
    assert result.returncode == 1
    order = tmp_path.joinpath("order").read_text().split()
    assert order.index("bad-1") < order.index("good-1")
    assert order[-2:] == ["bad-2", "good-3"]
    assert set(order) == {"bad-1", "good-1", "good-2", "bad-2", "good-3"}


def test_the_end_has_the_output_of_what_failed_and_the_last_line_names_it(
    tmp_path: Path,
) -> None:
    result = run(tmp_path, "bad-1", "good-1", "--next", "bad-2,good-3")
    lines = result.stdout.splitlines()
    assert lines[-1] == "== FAILED: bad-1, bad-2"
    ends = [number for number, line in enumerate(lines) if line.endswith("says why")]
    writes = [number for number, line in enumerate(lines) if line.endswith("writes")]
    assert len(ends) == 2
    assert max(writes) < min(ends)


def test_a_phase_of_one_target_writes_directly_and_all_passed(tmp_path: Path) -> None:
    result = run(tmp_path, "good-1", "--next", "good-2,good-3")
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1] == "== all 3 targets passed"
    assert "good-1 writes" in result.stdout
