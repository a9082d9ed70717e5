# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What changes a host's mode: a request for it, or a handover between two hosts.

Both hosts are of this client, so no other one's mode changes. Until an answer says how
it ended, a host may be either, and no write of it is judged.
"""

from __future__ import annotations

from tests.storm import hosts
from tests.storm.api import Answer
from tests.storm.client import Client
from tests.storm.hosts import Attached

UNSURE = "rw or ro"
_OTHER = {"rw": "ro", "ro": "rw"}
_LETTERS = {"a": "b", "b": "a"}


def change_mode(client: Client) -> None:
    """Let a writer read only, or a reader write."""
    rows = open_rows(client)
    if not rows:
        return
    row = client.rng.choice(rows)
    before, mode = row.mode, _OTHER[row.mode]
    op = client.begin("mode", row.id, row.volume_id, mode=mode)
    row.mode = UNSURE
    body = {"attachment": {"mode": mode}}
    answer = client.api.ask(op, "PUT", f"/v3/attachments/{row.id}", body)
    if answer.status == 200:
        _become(client, row, mode)
    elif op.refused:
        row.mode = before
    else:
        client.unanswered.append(lambda: is_shown(client, row))


def hand_over(client: Client) -> None:
    """Hand write access from one host of this client to another of the same volume."""
    rows = open_rows(client)
    writers = [row for row in rows if row.mode == "rw"]
    if not writers:
        return
    writer = client.rng.choice(writers)
    readers = [row for row in rows if can_follow(row, writer)]
    if not readers:
        return attach_reader(client, writer)
    reader = client.rng.choice(readers)
    op = client.begin("handover", writer.id, reader.id, writer.volume_id)
    writer.mode = reader.mode = UNSURE
    body = {"to": reader.id, "from": writer.id}
    answer = client.act(op, writer.volume_id, "lunshare:handover", body)
    if answer.good:
        _see_generation(client, writer.volume_id, answer, op.began)
    if answer.good and answer.body["handover"]["status"] == "done":
        _become(client, writer, "ro")
        _become(client, reader, "rw")
    elif op.refused:
        writer.mode, reader.mode = "rw", "ro"
    else:
        client.unanswered.append(lambda: _has_ended(client, writer, reader))


def open_rows(client: Client) -> list[Attached]:
    """The attachments that are open in a mode that is known."""
    return [
        row
        for row in client.attached
        if row.session is not None and not row.ending and row.mode in _OTHER
    ]


def attach_reader(client: Client, writer: Attached) -> None:
    """Attach the other host of the client, so that it can follow this one later."""
    letter = _LETTERS.get(writer.initiator[-1], "a")
    hosts.attach_host(client, writer.volume_id, letter, "ro")


def can_follow(row: Attached, writer: Attached) -> bool:
    """Whether it reads the same volume, by another host."""
    return (
        row.mode == "ro"
        and row.volume_id == writer.volume_id
        and row.initiator != writer.initiator
    )


def _become(client: Client, row: Attached, mode: str) -> None:
    """The host has this mode, and logs in again, as the answer says."""
    row.mode = mode
    if not row.ending:
        hosts.log_in(client, row)


def is_shown(client: Client, row: Attached) -> bool:
    """Whether the row says what the mode is, and the target does it."""
    answer = client.get(f"attachments/{row.id}")
    if row not in client.attached or row.ending or answer.status == 404:
        return True
    shown = answer.body["attachment"] if answer.status == 200 else {"fence": "?"}
    if "fence" in shown or "error" in shown["status"]:
        return False
    _become(client, row, shown["attach_mode"])
    return True


def ask_generation(client: Client, volume_id: str) -> None:
    """Ask for the fencing generation, as any reader can."""
    asked = client.now()
    answer = client.get(f"volumes/{volume_id}/handover")
    if answer.status == 200:
        _see_generation(client, volume_id, answer, asked)


def _see_generation(
    client: Client, volume_id: str, answer: Answer, asked: float
) -> None:
    client.see_generation(volume_id, answer.body["fencing_generation"], asked)


def _has_ended(client: Client, writer: Attached, reader: Attached) -> bool:
    """Whether a handover has ended. Who follows may wait for an error of the volume."""
    asked = client.now()
    answer = client.get(f"volumes/{writer.volume_id}/handover")
    if answer.status != 200:
        return answer.status == 404
    _see_generation(client, writer.volume_id, answer, asked)
    latest = answer.body["handover"]
    if latest is not None and latest["status"] == "fence pending":
        return False
    ends = [writer] if latest and latest["status"] == "promoting" else [writer, reader]
    return all(is_shown(client, row) for row in ends)
