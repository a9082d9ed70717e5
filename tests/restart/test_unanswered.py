# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed before or right after its answer to an attach.

A client that got no answer sends the same request again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.model.errors import DatabaseFailed, Invalid
from lunshare.agent.model.records import Mode, NewAttachment
from lunshare.drivers.fake import fake_storage
from tests.restart.killing import MANY, WIPES, Killed, Killer, attach_request, let_end
from tests.stands.node import CTX, Node, host_connector, initiator


def _asked_again(path: Path, new: Callable[[str], NewAttachment], step: int) -> bool:
    """Kill a creation at ``step``; send the same request after a restart."""
    fake_storage.reset()
    path.mkdir()
    first = Node(path, backends="fake,other", section=WIPES).start()
    volume = first.plain_volume()
    killer = Killer(first, step)
    with contextlib.suppress(Killed):
        first.services.attachments.create(CTX, new(volume.id))
    let_end(first)
    second = Node(path, backends="fake,other", section=WIPES).start()
    row = second.services.attachments.create(CTX, new(volume.id))
    assert [each.id for each in second.services.attachments.list(CTX, MANY)] == [row.id]
    wanted = {} if row.initiator is None else {row.initiator: "rw"}
    assert second.live(volume.id) == wanted
    # A client that has its answer has the volume: the same request gets no other.
    with pytest.raises(Invalid):
        second.services.attachments.create(CTX, new(volume.id))
    let_end(second)
    second.close()
    return killer.fired


@pytest.mark.parametrize("connects", [True, False])
def test_an_unanswered_attach_can_be_repeated(connects: bool, tmp_path: Path) -> None:
    """Of a volume that takes one host: the first request must not hold it."""

    def new(volume_id: str) -> NewAttachment:
        if connects:
            return attach_request(volume_id, "first", "rw")
        return NewAttachment(volume_id, mode=Mode.RW)

    steps = 1
    while _asked_again(tmp_path / str(steps), new, steps):
        steps += 1
    assert steps > (3 if connects else 1)


@contextlib.contextmanager
def broken_table(path: Path) -> Iterator[None]:
    """No attachment can be written."""
    rename = "ALTER TABLE {} RENAME TO {}"
    with contextlib.closing(sqlite3.connect(path / "lunshare.sqlite")) as other:
        other.execute(rename.format("volume_attachment", "elsewhere"))
        yield
        other.execute(rename.format("elsewhere", "volume_attachment"))


def test_an_answered_attach_is_not_reused(tmp_path: Path) -> None:
    fake_storage.reset()
    first = Node(tmp_path, backends="fake,other", section=WIPES).start()
    volume = first.plain_volume()
    asked = attach_request(volume.id, "first", "rw")
    first.services.attachments.create(CTX, asked)
    mark_answered = first.services.attachments.unanswered.mark_answered
    mark_answered()  # each later call marks what was sent before the first
    with broken_table(tmp_path), pytest.raises(DatabaseFailed):
        mark_answered()
    mark_answered()
    let_end(first)
    second = Node(tmp_path, backends="fake,other", section=WIPES).start()
    with pytest.raises(Invalid):
        second.services.attachments.create(CTX, asked)
    assert second.live(volume.id) == {initiator("first"): "rw"}
    second.close()


def test_an_attach_whose_client_knows_the_id_is_not_reused(tmp_path: Path) -> None:
    """The daemon was killed right after its answer; then the client connects again."""
    fake_storage.reset()
    first = Node(tmp_path, backends="fake,other", section=WIPES).start()
    volume = first.plain_volume()
    asked = attach_request(volume.id, "first", "rw")
    known = first.services.attachments.create(CTX, asked).id
    let_end(first)
    second = Node(tmp_path, backends="fake,other", section=WIPES).start()
    second.services.attachments.connect(CTX, known, host_connector("first"))
    with pytest.raises(Invalid):
        second.services.attachments.create(CTX, asked)
    assert second.live(volume.id) == {initiator("first"): "rw"}
    second.close()


def _fail_next_commit(node: Node) -> None:
    """SQLite refuses the next COMMIT on the connection that writes."""
    with node.assembly.database.writing() as connection:
        driver: Any = connection.connection.dbapi_connection

    def allowed(action: int, word: str | None, *_: object) -> int:
        commits = action == sqlite3.SQLITE_TRANSACTION and word == "COMMIT"
        return sqlite3.SQLITE_DENY if commits else sqlite3.SQLITE_OK

    driver.set_authorizer(allowed)


@pytest.mark.parametrize("connects", [True, False])
def test_an_attach_is_found_again_after_its_repetition_failed(
    connects: bool, tmp_path: Path
) -> None:
    """The database fails after the restart, and the client asks a third time."""
    fake_storage.reset()
    first = Node(tmp_path, backends="fake,other", section=WIPES).start()
    volume = first.plain_volume()
    asked = NewAttachment(volume.id, mode=Mode.RW)
    if connects:
        asked = attach_request(volume.id, "first", "rw")
    known = first.services.attachments.create(CTX, asked).id
    let_end(first)
    second = Node(tmp_path, backends="fake,other", section=WIPES).start()
    _fail_next_commit(second)
    with pytest.raises(DatabaseFailed):
        second.services.attachments.create(CTX, asked)
    assert second.services.attachments.create(CTX, asked).id == known
    with pytest.raises(Invalid):
        second.services.attachments.create(CTX, asked)
    second.close()


def test_an_attach_before_a_clean_stop_is_not_reused(tmp_path: Path) -> None:
    """Every answer was sent before the stop, so the next request is another client."""
    fake_storage.reset()
    first = Node(tmp_path, backends="fake,other", section=WIPES).start()
    volume = first.shared_volume()
    asked = NewAttachment(volume.id)
    known = first.services.attachments.create(CTX, asked).id
    first.close()
    second = Node(tmp_path, backends="fake,other", section=WIPES).start()
    assert second.services.attachments.create(CTX, asked).id != known
    second.close()


def test_an_attach_is_not_reused_for_another_user(tmp_path: Path) -> None:
    """Two users may reserve a shared volume with the same request."""
    fake_storage.reset()
    first = Node(tmp_path, backends="fake,other", section=WIPES).start()
    volume = first.shared_volume()
    asked = NewAttachment(volume.id, mode=Mode.RO)
    known = first.services.attachments.create(CTX, asked).id
    let_end(first)  # it was answered just before the end
    second = Node(tmp_path, backends="fake,other", section=WIPES).start()
    create = second.services.attachments.create
    assert create(replace(CTX, user_id="another"), asked).id != known
    assert create(CTX, asked).id == known
    let_end(second)
    second.close()
