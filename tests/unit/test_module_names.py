# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Names of modules: one name, one meaning; and no name outside ``lunshare``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_RESOURCE = "one resource of the API: its handler, its rules, its rows"
_OPTIONS = "the options of the part with the same name"
_OPERATION = "one operation: its rule, its driver's part, its part of the kit"
_HALVES = "one storage or target: the driver, and its half that runs as root"
_SAME_PART = "the same part of two or more packages"

#: Names of more than one module, and why they mean the same thing.
SHARED = {
    "access": _OPERATION,
    "attachments": _RESOURCE,
    "commands": _SAME_PART,
    "errors": _SAME_PART,
    "extend": _OPERATION,
    "fake": _HALVES,
    "forms": _SAME_PART,
    "lio": _HALVES,
    "lvm": _HALVES,
    "main": _SAME_PART,
    "manage": _OPERATION,
    "messages": _RESOURCE,
    "nfs": _HALVES,
    "node": _OPTIONS,
    "orphans": _RESOURCE,
    "paging": _SAME_PART,
    "qos": _RESOURCE,
    "quotas": _RESOURCE,
    "requests": _SAME_PART,
    "revert": _OPERATION,
    "service": _SAME_PART,
    "services": _RESOURCE,
    "snapshots": _RESOURCE,
    "transfers": _RESOURCE,
    "type_access": _RESOURCE,
    "type_encryption": _RESOURCE,
    "types": _RESOURCE,
    "volumes": _RESOURCE,
}


def modules() -> list[Path]:
    files = ROOT.glob("lunshare/**/*.py")
    return [file for file in files if "versions" not in file.parts]


def name(file: Path) -> str:
    return file.parent.name if file.stem == "__init__" else file.stem


def test_two_modules_have_one_name_only_with_a_reason() -> None:
    counts = Counter(map(name, modules()))
    assert {each for each, count in counts.items() if count > 1} == set(SHARED)


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel of this tree installs into site-packages."""
    tree = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lunshare", tree / "lunshare", ignore=ignored)
    for link in ("agent", "drivers"):
        (tree / link).symlink_to(f"lunshare/{link}")
    for file in ("setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tree)
    built = tmp_path_factory.mktemp("site")
    line = "import setuptools; setuptools.setup()"
    words = [
        sys.executable,
        "-c",
        line,
        "--quiet",
        "build_py",
        "--build-lib",
        str(built),
    ]
    subprocess.run(words, cwd=tree, check=True, capture_output=True)
    return built


def test_wheel_installs_its_modules_only_below_lunshare(
    site: Path, tmp_path: Path
) -> None:
    assert [each.name for each in site.iterdir()] == ["lunshare"]
    installed = {file.relative_to(site) for file in site.rglob("*.py")}
    assert installed == {
        file.relative_to(ROOT) for file in ROOT.glob("lunshare/**/*.py")
    }
    assert (site / "lunshare/agent/api/openapi.json").is_file()
    assert not any(each.is_symlink() for each in site.rglob("*"))
    for module in ("agent", "drivers"):
        assert imports(site, tmp_path, f"lunshare.{module}")
        assert not imports(site, tmp_path, module)


def imports(site: Path, elsewhere: Path, module: str) -> bool:
    """Whether the import works outside the checkout."""
    # -S: without this environment's own packages, such as an editable install.
    line = f"import sys; sys.path.insert(0, {str(site)!r}); import {module}"
    words = [sys.executable, "-I", "-S", "-c", line]
    done = subprocess.run(words, cwd=elsewhere, check=False, capture_output=True)
    assert done.returncode == 0 or b"ModuleNotFoundError" in done.stderr
    return done.returncode == 0
