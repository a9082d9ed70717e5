# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What runs the parts of ``make test``: one that fails keeps no other from running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ROOT / "tests/beside"
#: What a make hands to the make below it.
MAKE_VARIABLES = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
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


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("storm-seeds", ["storm-tests", "storm-741602316", "storm-20261125"]),
        ("openapi", ["openapi-noauth", "openapi-http_basic", "openapi-keystone"]),
    ],
)
def test_a_failing_part_of_a_target_keeps_no_other_part_from_running(
    tmp_path: Path, target: str, parts: list[str]
) -> None:
    """In a copy of the Makefile in which whatever a part starts fails."""
    copy_makefile(tmp_path)
    for name in (".venv/bin/python", "tests/storm/run", "tests/openapi/run"):
        program(tmp_path / name, "exit 1")
    program(tmp_path / "tests/memory", "exit 0")
    tmp_path.joinpath(".venv/.ready").touch()
    result = make(tmp_path, target)
    assert result.returncode != 0
    failures = [line for line in result.stderr.splitlines() if "Error 1" in line]
    assert len(failures) == len(parts)
    for part, line in zip(parts, failures, strict=True):
        assert f"{part}]" in line


@pytest.mark.parametrize(("code", "printed"), [(0, False), (1, True)])
def test_pip_is_heard_only_when_it_fails(
    tmp_path: Path, code: int, printed: bool
) -> None:
    copy_makefile(tmp_path)
    program(tmp_path / "tests/prerequisites", "exit 0")
    pip = tmp_path / ".venv/bin/pip"
    program(pip, f"echo WARNING: Retrying >&2; exit {code}")
    program(tmp_path / "programs/python3", "exit 0")
    result = make(tmp_path, ".venv/.ready", path=tmp_path / "programs")
    assert (result.returncode != 0) == printed
    assert ("WARNING: Retrying" in result.stderr) == printed


def copy_makefile(tree: Path) -> None:
    """Copy it, and make what it depends on."""
    tree.joinpath("Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("setup.cfg", "pyproject.toml"):
        tree.joinpath(name).touch()


def program(file: Path, script: str) -> None:
    """Write a script of the shell in the place of a program."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def make(
    tree: Path, target: str, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run make in the tree, as if no make had started the test."""
    environment = {k: v for k, v in os.environ.items() if k not in MAKE_VARIABLES}
    environment["PATH"] = f"{path or tree}:{os.environ['PATH']}"
    command = ["make", target]
    return subprocess.run(
        command, cwd=tree, check=False, capture_output=True, text=True, env=environment
    )
