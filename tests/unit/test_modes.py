# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which mode an attachment gets; one file decides it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import Attachment, Mode, Volume
from lunshare.agent.model.states import AttachStatus, VolumeStatus
from lunshare.agent.service.attachments import wanted_state

AGENT = Path(__file__).resolve().parents[2] / "lunshare" / "agent"
DECIDING = "service/attachments/wanted_state.py"

RO, RW = Mode.RO, Mode.RW


def volume(readonly: bool) -> Volume:
    """A volume with this flag."""
    status = VolumeStatus.AVAILABLE
    return Volume("volume", 1, status, "a", "project", "user", readonly=readonly)


@pytest.mark.parametrize(
    ("readonly", "requests", "reserved", "opened"),
    [
        (False, (), None, RW),
        (False, (None, None), None, RW),
        (False, (None, RO), RO, RO),
        (False, (RO, RW), RO, RO),
        (False, (RW, RO), RW, RW),
        (True, (None,), RO, RO),
        (True, (RW, RW), RO, RO),
    ],
)
def test_the_first_request_that_names_a_mode_decides_unless_the_volume_is_readonly(
    readonly: bool, requests: tuple[Mode | None, ...], reserved: Mode, opened: Mode
) -> None:
    assert wanted_state.choose_mode(volume(readonly), *requests) is reserved
    assert wanted_state.choose_open_mode(volume(readonly), *requests) is opened


def test_a_readonly_volume_refuses_rw_by_name() -> None:
    wanted_state.check_writable(volume(True), RO)
    wanted_state.check_writable(volume(True), None)
    wanted_state.check_writable(volume(False), RW)
    with pytest.raises(Invalid, match=r"os-attach\.mode: .* is readonly"):
        wanted_state.check_writable(volume(True), RW)


def test_a_host_with_both_modes_may_write() -> None:
    rows = [
        Attachment(mode, "volume", AttachStatus.ATTACHED, mode) for mode in (RO, RW)
    ]
    assert wanted_state._widest(rows) is RW
    assert wanted_state._widest(rows[:1]) is RO
    assert wanted_state._are_mixed(rows)
    assert not wanted_state._are_mixed(rows[1:])


def test_text_becomes_a_mode_or_an_error_that_names_the_field() -> None:
    assert wanted_state.parse_mode("ro", "attachment.mode") is RO
    assert wanted_state.parse_mode(None, "attachment.mode") is None
    for text in ("", "RO", "wo", 1, ["ro"]):
        with pytest.raises(Invalid, match=r"attachment\.mode must be ro or rw"):
            wanted_state.parse_mode(text, "attachment.mode")


def test_no_other_file_decides() -> None:
    files = {
        str(file.relative_to(AGENT))
        for file in AGENT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if ast.unparse(node) == "Mode.RW"
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "Mode")
    }
    assert files == {DECIDING}
