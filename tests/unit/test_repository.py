# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the repository itself: file sizes, the sample file, packaged files."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import EntryPoint
from pathlib import Path

from tests.conftest import stale_scripts
from tools import sample

ROOT = Path(__file__).resolve().parents[2]


def sources() -> Iterator[Path]:
    yield from ROOT.glob("lunshare/**/*.py")


def test_no_folder_has_more_than_24_files() -> None:
    """But the kit, whose files a reader does not need together."""
    files = Counter(file.parent for file in sources())
    del files[ROOT / "lunshare/drivers/conformance"]
    assert [folder for folder, count in files.items() if count > 24] == []


def test_no_file_is_longer_than_500_lines() -> None:
    files = list(sources())
    files += ROOT.glob("tests/**/*.py")
    long = [str(f) for f in files if len(f.read_text().splitlines()) >= 500]
    assert files
    assert long == []


def test_every_source_file_has_its_license_and_a_docstring() -> None:
    files = [*sources()]
    assert files
    for file in files:
        if "versions" in file.parts:
            continue
        lines = file.read_text().splitlines()
        assert lines[0].startswith("# SPDX-FileCopyrightText:"), file
        assert lines[1] == "# SPDX-License-Identifier: Apache-2.0", file
        assert lines[2].startswith('"""'), file


def test_the_sample_file_is_generated_from_the_options() -> None:
    written = io.StringIO()
    sample.write(written)
    assert (ROOT / "etc" / "lunshare.conf.sample").read_text() == written.getvalue()


def test_daemon_has_its_libraries_in_tests_too() -> None:
    """The lab installs what drivers and tests need, and runs the daemon with it."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    assert set(extras["daemon"].split()) <= set(extras["test"].split())


def test_every_file_that_a_node_needs_is_packaged() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    packaged = set("\n".join(setup["options.data_files"].values()).split())
    needed = {
        str(f.relative_to(ROOT))
        for d in ("systemd", "rootwrap.d", "etc")
        for f in (ROOT / d).iterdir()
    }
    pages = {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    pages |= {
        "LICENSE",
        "docs/*.md",
        "docs/decisions/*.md",
        "docs/kernel-reports/*.md",
        "docs/loopback-workflow.yml",
        "docs/openapi.json",
    }
    assert packaged == needed | pages


def test_a_file_that_starts_a_daemon_is_not_in_the_fast_loop() -> None:
    starts = r"^from tests\.(?:stands\.daemon|api\.identity_daemon|api\.clients) import"
    starts += r"|^from tests\.api import .*\bclients\b"
    texts = {file: file.read_text() for file in ROOT.glob("tests/api/test_*.py")}
    found = {file for file, text in texts.items() if re.search(starts, text, re.M)}
    mark = "\npytestmark = pytest.mark.daemon\n"
    assert len(found) > 10
    assert [file.name for file in found if mark not in texts[file]] == []


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text()
    pages = sorted(each.name for each in ROOT.glob("docs/decisions/0*.md"))
    assert len(pages) > 20
    assert [name for name in pages if f"({name})" not in listed] == []


def test_programs_of_a_checkout_before_the_folders_moved_are_named() -> None:
    modules = {
        "lunshare-helper": "lunshare.drivers.helper.main",
        "lunshared": "lunshare.agent.entry_points",
        "lunshare": "lunshare.agent.command_line",
    }
    scripts = [
        EntryPoint(name, f"{module}:main", "console_scripts")
        for name, module in modules.items()
    ]
    assert stale_scripts(scripts) == ["lunshare-helper", "lunshare"]
