# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""docs/operations.md has the sentences, names and commands that the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent.cli import main
from lunshare.agent.service.scheduling.filters import FILTERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()

_CODE = re.compile(r"`([^`\n]+)`")
_ANSWER = re.compile(r"(?:4\d\d|503|answered)\s+`([^`]+)`")
# A placeholder of a value on the page: a capital letter or word, N, or "...".
_VALUE = re.compile(r"\.\.\.|\b(?:[A-Z]|ID|[1-9]\d*)\b")
_NAME = re.compile(r"[a-z]+(?:_[a-z]+)+")

#: Sections whose tables start with a sentence or a log line.
_TABLES = ("It does not start", "NFS backends")
#: Sentences of oslo.config, which reads the configuration.
_OTHER_SENTENCES = ("Failed to find", "open some config files:", "Value for option")
#: Names of the kernel, LVM, NFS, open-iscsi, keystonemiddleware, keystoneauth, Nova,
#: and Prometheus.
_OTHER_NAMES = {
    "needs_check",
    "thin_check_options",
    "basic_auth",
    "endpoint_override",
    "send_service_user_token",
    "service_user",
    "token_auth_url",
    "global_filter",
    "no_root_squash",
    "service_token_roles",
    "token_cache_time",
    "no_space_timeout",
    "replacement_timeout",
    "scan_lvs",
    "seg_monitor",
    "use_devicesfile",
}


def source_files() -> Iterator[Path]:
    for file in ROOT.glob("lunshare/**/*.py"):
        if "conformance" not in file.parts:
            yield file


@pytest.fixture(scope="module")
def texts() -> str:
    """Every string of the code; a value in an f-string is a line break."""
    found: list[str] = []
    for file in source_files():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "\n"
                    for part in node.values
                ]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%\S|\{\}", "\n", node.value))
    return "\n".join(found)


def sentences() -> Iterator[str]:
    """The error sentences of the page: first cells of tables, and quoted answers."""
    for heading in _TABLES:
        section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        for line in section.splitlines():
            if line.startswith("| `"):
                yield from _CODE.findall(line.split(" | ")[0])
    yield from (re.sub(r"\s+", " ", each) for each in _ANSWER.findall(PAGE))


def test_error_sentences_of_the_page_are_in_the_code(texts: str) -> None:
    fragments = {
        part.strip(" ,:;]\"'")
        for sentence in sentences()
        if not sentence.startswith(_OTHER_SENTENCES)
        for part in _VALUE.split(sentence)
    }
    found = [part for part in fragments if len(part.split()) > 2]
    assert len(found) > 30
    missing = [part for part in found if part not in texts]
    assert not missing, missing


def test_log_lines_of_the_page_are_in_the_code(texts: str) -> None:
    block = PAGE.partition("then key=value.\n\n")[2].partition("\n\n")[0]
    lines = re.findall(r"(?:\] |^    )([a-z][a-z ]+):", block, re.M)
    assert "attachment connected" in lines
    assert [line for line in lines if line not in texts] == []


def test_page_has_every_filter_in_order() -> None:
    assert re.findall(r"^\| `(\w+Filter)` \|", PAGE, re.M) == list(FILTERS)


def test_names_of_the_page_are_in_the_code() -> None:
    code = "".join(file.read_text() for file in source_files())
    code += "".join(file.read_text() for file in (ROOT / "etc").iterdir())
    names = {name for span in _CODE.findall(PAGE) for name in _NAME.findall(span)}
    names = {name for name in names if not name.startswith("lunshare_")}  # test_metrics
    assert "progress_timeout" in names
    assert names - set(re.findall(r"\w+", code)) <= _OTHER_NAMES


def commands() -> list[str]:
    pages = PAGE + (ROOT / "README.md").read_text()
    return sorted(
        set(re.findall(r"(?:^    |`)lunshare ([a-z][a-z-]*)\b(?!:)", pages, re.M))
    )


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_pages_exist(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([command, "--help"])
    assert ended.value.code == 0
    assert command in capsys.readouterr().out


def test_root_opens_no_file_that_the_daemons_user_may_have_planted() -> None:
    """A link in the place of a copy, and the restore gave that user /etc/shadow."""
    commands = re.findall(r"^ {4}(\S.*)$", PAGE, re.MULTILINE)
    restoring = [line for line in commands if "cat " in line and "sqlite" in line]
    assert restoring
    for line in restoring:
        assert line.startswith("runuser -u lunshare -- ")
        assert not re.search(r"<\s*(\$cp|/var/lib/lunshare)", line)
