# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of states, and the page generated from them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lunshare.agent.model import states
from lunshare.agent.model.states import AttachStatus as A
from lunshare.agent.model.states import SnapshotStatus as S
from lunshare.agent.model.states import VolumeStatus as V
from lunshare.agent.model.states import volume_status
from tools import states_page

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("attachments", "seen"),
    [
        ([], V.AVAILABLE),
        ([A.RESERVED], V.RESERVED),
        ([A.RESERVED, A.DETACHING], V.DETACHING),
        ([A.DETACHING, A.ATTACHING, A.RESERVED], V.ATTACHING),
        ([A.ATTACHING, A.ATTACHED, A.DETACHING], V.IN_USE),
        ([A.ERROR_ATTACHING], V.AVAILABLE),
        ([A.ERROR_DETACHING], V.DETACHING),
    ],
)
def test_the_status_of_a_volume_follows_its_attachments_by_priority(
    attachments: list[A], seen: V
) -> None:
    assert volume_status(V.AVAILABLE, attachments) is seen


def test_the_own_error_of_a_volume_hides_its_attachments() -> None:
    for own, attached in product(set(V) - {V.AVAILABLE}, A):
        assert volume_status(own, [attached]) is own


def test_every_status_leads_to_the_end() -> None:
    """No row can be stuck: from every status the table leads to the end."""
    left = {old for old, _, _ in states.ATTACHMENT_TRANSITIONS} | {A.DETACHED}
    assert left == set(A)
    derived = {V.RESERVED, V.ATTACHING, V.DETACHING, V.IN_USE}
    assert {old for old, _, _ in states.VOLUME_TRANSITIONS} == set(V) - derived
    assert {old for old, _, _ in states.SNAPSHOT_TRANSITIONS} == set(S)


def test_every_operation_in_progress_is_resumed_or_can_be_left() -> None:
    resting = {V.AVAILABLE, V.ERROR, V.ERROR_DELETING, V.ERROR_MANAGING}
    resting.add(V.AWAITING_TRANSFER)  # until a project takes it
    assert {
        old for old, _, _ in states.VOLUME_TRANSITIONS
    } == states.UNFINISHED | resting


def test_only_changes_of_the_table_are_allowed() -> None:
    assert states.attachment_may_change(A.RESERVED, A.ATTACHING)
    assert not states.attachment_may_change(A.DETACHING, A.ATTACHED)
    assert not states.volume_may_change(V.DELETING, V.AVAILABLE)
    assert not states.snapshot_may_change(S.DELETING, S.AVAILABLE)


def test_the_page_in_docs_is_generated_from_the_tables() -> None:
    assert (ROOT / "docs" / "states.md").read_text() == states_page.page()
