# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What clients do as hosts: attach, log in, write, read, detach.

A host needs only the storage for I/O. So its access must work until it asks to detach,
also while the daemon does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lunshare.drivers.fake.fake_storage import BLOCK
from lunshare.drivers.values import Auth
from tests.storm import marks
from tests.storm.api import Answer
from tests.storm.client import Client
from tests.storm.journal import Op
from tests.storm.world import BACKENDS

MOST = 4


@dataclass
class Attached:
    """One attachment of this client. ``session`` is a number, once logged in."""

    id: str
    volume_id: str
    initiator: str
    mode: str
    info: dict[str, Any] | None
    instance: str | None
    #: The number of the daemon's start when it was created.
    start: int = 0
    session: int | None = None
    ending: bool = False


def attach(client: Client, volume_id: str) -> None:
    """With a connector at once, or reserved first."""
    mode = client.rng.choice(["rw", "ro"])
    attach_host(client, volume_id, client.rng.choice("ab"), mode)


def attach_host(client: Client, volume_id: str, letter: str, mode: str) -> None:
    """Attach one of the two hosts of this client, unless it has many attachments."""
    if len(client.attached) >= MOST:
        return
    initiator = client.host(letter)
    connects = client.rng.random() < 0.75
    # Two reservations without an instance are the same request, and after a kill the
    # second client could get the one of the first.
    instance = client.rng.choice([None, client.uuid()]) if connects else client.uuid()
    body: dict[str, Any] = {"volume_uuid": volume_id, "mode": mode}
    if instance:
        body["instance_uuid"] = instance
    if connects:
        body["connector"] = connector(initiator)
    row = Attached("", volume_id, initiator, mode, None, instance)
    _attach(client, row, {"attachment": body})


def connector(initiator: str) -> dict[str, Any]:
    return {"initiator": initiator, "host": initiator.rpartition(":")[2], "ip": "::1"}


def _attach(client: Client, row: Attached, body: dict[str, Any]) -> None:
    given = {"initiator": row.initiator, "mode": row.mode, "instance": row.instance}
    connects = "connector" in body["attachment"]
    op = client.begin("attach", row.volume_id, **given, connects=connects)

    def asked() -> bool:
        client.world.reopens(row.initiator, row.volume_id)
        # Of the daemon that answers: the request may be repeated after a kill.
        row.start = client.world.starts
        answer = client.post(op, "attachments", body)
        if not answer.good:
            mark_unsure(client, row.volume_id, row.initiator, answer)
            return answer.status is not None
        shown = answer.body["attachment"]
        row.id, row.info = shown["id"], shown["connection_info"] or None
        op.given["id"], op.done = row.id, op.answered
        client.journal.about(op, row.id)
        forget_earlier_attach(client, row)
        client.attached.append(row)
        if row.info:
            log_in(client, row)
        return True

    if not asked():
        client.unanswered.append(asked)


def forget_earlier_attach(client: Client, row: Attached) -> None:
    """Forget an earlier attach that has the same attachment.

    If the daemon is killed right after an answer, it does not know that the answer
    was sent: after a restart the same request gets the same attachment.
    """
    for same in [other for other in client.attached if other.id == row.id]:
        client.attached.remove(same)
        if same.start == row.start:
            sentence = f"attachment {row.id} was given to two requests"
            name = "an attachment is created for one request"
            client.journal.find(name, sentence, row.id, row.volume_id)


def mark_unsure(client: Client, volume_id: str, initiator: str, answer: Answer) -> None:
    """Without a clear answer an access may stay open for a while."""
    if answer.status is None or answer.status >= 500:
        client.unsure.add((volume_id, initiator))


def log_in(client: Client, row: Attached) -> None:
    """Log in. The storage must accept a host whose attachment was acknowledged."""
    if row.initiator in client.fenced:
        return
    try:
        row.session = _login(client, row)
    except PermissionError as error:
        if not row.ending:
            sentence = (
                f"attachment {row.id} was acknowledged, and its login fails: {error}"
            )
            client.journal.find(
                "an acknowledged attachment works", sentence, row.id, row.volume_id
            )


def _login(client: Client, row: Attached) -> int:
    info, refused = row.info or {}, PermissionError("no backend exports it")
    auth = Auth(info["auth_username"], info["auth_password"])
    for backend in BACKENDS:
        try:
            return int(
                client.storage_client.call(
                    "machine",
                    None,
                    "login",
                    backend,
                    row.volume_id,
                    row.initiator,
                    auth,
                )
            )
        except PermissionError as error:
            refused = error
    raise refused


def connect(client: Client) -> None:
    """Give a reserved attachment a connector, or another one to an open one."""
    if not client.attached:
        return
    row = client.rng.choice(client.attached)
    if row.ending or (row.info and client.rng.random() < 0.7):
        return
    if row.initiator in client.fenced:
        return  # it has no access to replace, and gets it back
    letter = client.rng.choice("ab")
    initiator = client.host(letter)
    given = {"initiator": initiator, "mode": row.mode}
    op = client.begin("connect", row.id, row.volume_id, **given)
    body = {"attachment": {"connector": connector(initiator)}}
    before = (row.initiator, row.info, row.session)
    row.info = row.session = None

    def asked() -> bool:
        client.world.reopens(initiator, row.volume_id)
        answer = client.api.ask(op, "PUT", f"/v3/attachments/{row.id}", body)
        if answer.good:
            row.info = answer.body["attachment"]["connection_info"]
            row.initiator, op.done = initiator, op.answered
            if not row.ending:
                log_in(client, row)
        elif op.refused and answer.status != 404:
            row.initiator, row.info, row.session = before
        mark_unsure(client, row.volume_id, before[0], answer)
        mark_unsure(client, row.volume_id, initiator, answer)
        return answer.status is not None

    if not asked():
        client.unanswered.append(asked)


def complete(client: Client) -> None:
    ready = [row for row in client.attached if row.info and not row.ending]
    if ready:
        row = client.rng.choice(ready)
        op = client.begin("complete", row.id, row.volume_id)
        client.post(op, f"attachments/{row.id}/action", {"os-complete": None})
        client.volume(row.volume_id)


def detach(client: Client) -> None:
    ready = [row for row in client.attached if not row.ending]
    if ready:
        end(client, client.rng.choice(ready))


def end(client: Client, row: Attached) -> None:
    """When the answer is there, the host must be out."""
    row.ending = True
    op = client.begin("detach", row.id, row.volume_id)

    def asked() -> bool:
        answer = client.delete(op, f"attachments/{row.id}")
        if not (answer.good or answer.status == 404):
            return False
        op.done = op.answered
        forget(client, [row])
        return True

    if not asked():
        client.unanswered.append(asked)


def forget(client: Client, rows: list[Attached]) -> None:
    """These are detached: their hosts must be out."""
    rows = [row for row in rows if row in client.attached]
    for row in rows:
        client.attached.remove(row)
    for row in rows:
        _check_closed(client, row)


def _check_closed(client: Client, row: Attached) -> None:
    same = (row.volume_id, row.initiator)
    others = {(other.volume_id, other.initiator) for other in client.attached}
    if row.info is None or same in others | client.unsure:
        return
    if row.session is not None and client.storage_client.call(
        "machine", None, "session", row.session, "alive"
    ):
        sentence = f"attachment {row.id} is detached, and its session continues"
        client.journal.find("a detached host is out", sentence, row.id, row.volume_id)


def write(client: Client) -> None:
    """Write a mark in the client's own block: the client, and a number."""
    row = _open(client)
    if row is None:
        return
    place = client.rng.randrange(len(marks.PLACES))
    client.writes += 1
    mark = marks.block_bytes(client.number, client.writes)
    offset = marks.block(client.number, place) * BLOCK
    given = {"number": client.writes, "place": place, "client": client.number}
    op = client.begin("write", row.volume_id, **given)
    try:
        client.storage_client.call(
            "machine", None, "session", row.session, "write", offset, mark
        )
    except (PermissionError, ConnectionError, OSError) as error:
        op.answered, op.status, op.error = client.now(), 403, str(error)
        if row.mode == "rw":
            _lost(client, row, op)
        return
    op.answered = op.done = client.now()
    op.status, op.certain = 200, True
    if row.mode == "ro" and row.volume_id in client.world.passed_on:
        row.mode = "rw"  # the lease of another host has ended
    elif row.mode == "ro":
        sentence = f"attachment {row.id} is read-only, and its host has written"
        client.journal.find(
            "a read-only host cannot write", sentence, row.id, row.volume_id
        )


def _open(client: Client) -> Attached | None:
    """An attachment through which there may be I/O."""
    ready = [
        row for row in client.attached if row.session is not None and not row.ending
    ]
    if not ready:
        return None
    row = client.rng.choice(ready)
    # Few writes of read-only hosts are enough: each of them fails.
    return row if row.mode == "rw" or client.rng.random() < 0.2 else None


def _lost(client: Client, row: Attached, op: Op) -> None:
    sentence = (
        f"attachment {row.id} was acknowledged rw, and its write fails: {op.error}"
    )
    client.journal.find(
        "an acknowledged attachment works", sentence, row.id, row.volume_id
    )
