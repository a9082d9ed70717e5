# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Several hosts of one client at once: attached, or detached, all of them or none."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.storm import hosts
from tests.storm.api import Answer
from tests.storm.client import Client
from tests.storm.hosts import Attached
from tests.storm.journal import Op

_LETTERS = "cde"


def attach_many(client: Client, volume_id: str) -> None:
    """Two or three hosts that nothing else attaches. A key finds them again."""
    if len(client.attached) >= hosts.MOST:
        return
    mode = client.rng.choice(["rw", "ro"])
    names = [client.host(letter) for letter in _LETTERS[: client.rng.randint(2, 3)]]
    rows = [Attached("", volume_id, name, mode, None, None) for name in names]
    given = {"mode": mode, "instance": None, "connects": True}
    ops = [client.begin("attach", volume_id, initiator=n, **given) for n in names]
    connectors = [hosts.connector(name) for name in names]
    body = {"key": client.uuid(), "mode": mode, "hosts": connectors}
    for name in names:
        client.world.reopens(name, volume_id)

    def asked() -> bool:
        start = client.world.starts
        answer = client.act(ops[0], volume_id, "lunshare:attach", body)
        for op in ops:
            op.answered, op.status, op.error = client.now(), answer.status, ops[0].error
        if answer.good:
            shown = answer.body["attachments"]
            for row, op, one in zip(rows, ops, shown, strict=True):
                row.start = start
                _take(client, row, op, one)
            return True
        for row in rows:
            hosts.mark_unsure(client, volume_id, row.initiator, answer)
        return answer.status is not None

    if not asked():
        client.unanswered.append(asked)
    elif ops[0].refused:
        _check_none(client, rows)


def _take(client: Client, row: Attached, op: Op, shown: dict[str, Any]) -> None:
    row.id, row.info = shown["id"], shown["connection_info"]
    op.given["id"], op.done = row.id, op.answered
    client.journal.about(op, row.id)
    hosts.forget_earlier_attach(client, row)
    client.attached.append(row)
    hosts.log_in(client, row)


def _check_none(client: Client, rows: list[Attached]) -> None:
    """A batch that is refused has opened nothing."""
    others = {(row.volume_id, row.initiator) for row in client.attached}
    live = client.live()
    for row in rows:
        key = (row.volume_id, row.initiator)
        if key not in others | client.unsure and row.initiator in live.get(key[0], {}):
            sentence = f"{row.initiator} has access by a batch that was refused"
            client.journal.find("a batch is all or none", sentence, row.volume_id)


def detach_many(client: Client) -> None:
    """All attachments of the client to one volume."""
    of_volume: defaultdict[str, list[Attached]] = defaultdict(list)
    for row in client.attached:
        if not row.ending:
            of_volume[row.volume_id].append(row)
    several = [rows for rows in of_volume.values() if len(rows) > 1]
    if several:
        _end(client, client.rng.choice(several))


def _end(client: Client, rows: list[Attached]) -> None:
    volume_id, ids = rows[0].volume_id, [row.id for row in rows]
    for row in rows:
        row.ending = True
    op = client.begin("detach", volume_id, *ids)

    def asked() -> bool:
        left = {"attachments": [row.id for row in rows if row in client.attached]}
        if not left["attachments"]:
            return True
        answer: Answer = client.act(op, volume_id, "lunshare:detach", left)
        if answer.status == 404:  # one of them has ended before
            for row in rows:
                if row in client.attached:
                    hosts.end(client, row)
            return True
        if answer.good:
            op.done = op.answered
            hosts.forget(client, rows)
        return answer.good

    if not asked():
        client.unanswered.append(asked)
