# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a new user reads: ``lunshare COMMAND --help``."""

from __future__ import annotations

import re
import shlex

import pytest

from lunshare.agent.cli import main as cli
from lunshare.agent.cli.help_text import EXAMPLES
from tests.stands.servers import ROOT

_LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]
_WORDS = r"[a-z-]+"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def listed(text: str) -> list[str]:
    """The commands that the help of a group lists."""
    return re.findall(rf"^    ({_WORDS})(?:  |$)", text, re.MULTILINE)


@pytest.mark.parametrize(("name", "line"), _LINES)
def test_each_example_is_a_right_command_line(name: str, line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    assert program == "lunshare"
    assert line.startswith(f"lunshare {name}")
    assert cli.command_line().parse_args(words)


def test_each_command_has_a_sentence_an_example_and_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    groups = {"": shown(capsys), "user ": shown(capsys, "user")}
    names = {
        f"{group}{name}" for group, text in groups.items() for name in listed(text)
    }
    assert names - {"user"} == set(EXAMPLES)
    for name in EXAMPLES:
        text = shown(capsys, *name.split())
        _, sentence, rest = text.split("\n\n", 2)
        assert re.fullmatch(r"[A-Z][^.]+[.](\n.*)?", sentence, re.DOTALL), name
        assert f"  {EXAMPLES[name][0]}\n" in rest, name
        assert re.search(r"^exit codes:\n   0  done\n   1  ", rest, re.MULTILINE), name


def test_the_operations_page_has_the_options_of_each_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs/operations.md").read_text()
    for name in EXAMPLES:
        if name.startswith("user"):
            continue
        text = shown(capsys, name).partition("example")[0]
        for option in set(re.findall(r"--[a-z]+", text)) - {"--help"}:
            assert option in page, (name, option)
