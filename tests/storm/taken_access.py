# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Access that ends by itself or by a cluster's word: leases, and fences of hosts.

Every host here belongs to one client, so nobody else gives back what was taken. What
is proven is looked at by the onlooker for a while, also over kills of the daemon.
"""

from __future__ import annotations

from functools import partial

from tests.storm import modes, write_limits
from tests.storm.api import Answer
from tests.storm.client import Client
from tests.storm.hosts import Attached
from tests.storm.onlooker import Closed

_TTL = 1  # seconds, the least
_RENEWALS = 1
_ROUNDS = 4  # retries of the client for which a fence stays


def fence(client: Client) -> None:
    """Fence one of the client's hosts, by either name, and end that later."""
    if client.unanswered or not client.attached:
        return
    initiator = client.rng.choice(client.attached).initiator
    writes_only = client.rng.random() < 0.4
    name = client.rng.choice([initiator, initiator.rpartition(":")[2]])
    rows = [row for row in client.attached if row.initiator == initiator]
    for row in rows:
        row.mode = modes.UNSURE
    ids = {row.id for row in rows} | {row.volume_id for row in rows}
    client.fenced.add(initiator)
    fenced = Fenced(client, initiator, name, writes_only, ids)
    if not fenced.goes_on():
        client.unanswered.append(fenced.goes_on)


class Fenced:
    """The fence of one host: until it is proven, then for some rounds, then its end."""

    def __init__(
        self,
        client: Client,
        initiator: str,
        name: str,
        writes_only: bool,
        ids: set[str],
    ) -> None:
        self._client, self._initiator, self._name = client, initiator, name
        self._writes_only, self._ids = writes_only, ids
        self._rounds = _ROUNDS
        self._proven: Closed | None = None

    def goes_on(self) -> bool:
        """Do the next step; return whether the fence has ended."""
        if self._proven is None:
            self._prove()
            return False
        if self._rounds and self._client.world.alive.is_set():
            self._rounds -= 1
            return False
        return self._end()

    def _ask(self, what: str, method: str, body: object) -> Answer:
        op = self._client.begin(what, *self._ids, host=self._name)
        path = f"/v3/lunshare/fences/{self._name}"
        answer = self._client.api.ask(op, method, path, body)
        if answer.good:
            for shown in answer.body["fence"]["volumes"]:
                ident, value = shown["volume_id"], shown["fencing_generation"]
                self._client.see_generation(ident, value, op.began)
        return answer

    def _prove(self) -> None:
        asked = {"fence": {"writes_only": self._writes_only}}
        answer = self._ask("fence", "PUT", asked)
        if answer.status == 200:
            self._proven = Closed(self._initiator, self._writes_only)
            self._client.world.closed.add(self._proven)

    def _end(self) -> bool:
        client = self._client
        if self._proven is not None:
            client.world.closed.discard(self._proven)
        if self._ask("unfence", "DELETE", None).status != 200:
            return False
        client.fenced.discard(self._initiator)
        for row in client.attached:
            if row.initiator == self._initiator and row.info:
                client.unanswered.append(partial(modes.is_shown, client, row))
        return True


def lend(client: Client) -> None:
    """Give a host write access for a second; it may renew that."""
    rows = modes.open_rows(client)
    if not rows:
        return
    row = client.rng.choice(rows)
    passes_on = client.rng.random() < 0.5
    if passes_on:
        followed = [
            one for one in rows if any(modes.can_follow(each, one) for each in rows)
        ]
        if not followed:
            return modes.attach_reader(client, row)
        row = client.rng.choice(followed)
        write_limits.name_all(client, row.volume_id)
    same = [each for each in rows if _is_same(each, row)]
    before = [each.mode for each in same]
    for each in same:
        each.mode = modes.UNSURE
    op = client.begin("lease", row.id, row.volume_id)
    if passes_on:
        client.world.passes_on(row.volume_id)
    lease = {"ttl": _TTL, **({"then": "next"} if passes_on else {})}
    body = {"attachment": {"mode": "rw", "lease": lease}}
    client.api.ask(op, "PUT", f"/v3/attachments/{row.id}", body)
    if op.refused:
        for each, mode in zip(same, before, strict=True):
            each.mode = mode
        if passes_on:
            client.world.has_passed_on(row.volume_id, promoted=False)
    else:
        lent = Lent(client, row, client.rng.randint(0, _RENEWALS), passes_on)
        client.unanswered.append(lent.goes_on)


class Lent:
    """A lease until it has ended, its host reads only, and the next has followed."""

    def __init__(
        self, client: Client, row: Attached, renewals: int, passes_on: bool
    ) -> None:
        self._client, self._row, self._renewals = client, row, renewals
        self._passes_on, self._is_over = passes_on, False
        self._ended: Closed | None = None

    def goes_on(self) -> bool:
        """Do the next step; return whether nothing is left to do."""
        self._is_over = self._is_over or self._has_ended()
        return self._is_over and (not self._passes_on or self._has_passed_on())

    def _has_passed_on(self) -> bool:
        """Whether the next one has followed, or waits for an error of the volume."""
        volume_id = self._row.volume_id
        answer = self._client.get(f"volumes/{volume_id}/handover")
        if answer.status not in (200, 404):
            return False
        latest = (answer.body.get("handover") if answer.status == 200 else None) or {}
        status = latest.get("status")
        if status == "fence pending":
            return False
        if status != "promoting":
            promoted = status == "done" and self._row.id in latest["from"]
            self._client.world.has_passed_on(volume_id, promoted)
        return True

    def _has_ended(self) -> bool:
        client, row = self._client, self._row
        if row.ending or row not in client.attached:
            return self._forget()
        if self._ended is not None:
            self._forget()
            same = [each for each in client.attached if _is_same(each, row)]
            return all(modes.is_shown(client, each) for each in same if each.info)
        answer = client.get(f"attachments/{row.id}")
        if answer.status != 200:
            return answer.status == 404
        lease = answer.body["attachment"].get("lease")
        if lease is None:  # that request was not carried out
            return modes.is_shown(client, row)
        if lease["status"] == "ended":
            self._see_end()
        elif lease["status"] == "running" and self._renewals:
            self._renewals -= 1
            op = client.begin("renew", row.id, row.volume_id)
            path = f"/v3/attachments/{row.id}/lease"
            client.api.ask(op, "PUT", path, {"lease": {}})
        return False

    def _see_end(self) -> None:
        row, world = self._row, self._client.world
        self._ended = Closed(row.initiator, True, row.volume_id)
        if (row.volume_id, row.initiator) not in self._client.unsure:
            world.close(self._ended, int(self._passes_on))

    def _forget(self) -> bool:
        if self._ended is not None:
            self._client.world.closed.discard(self._ended)
        return True


def _is_same(one: Attached, other: Attached) -> bool:
    """Whether they are of the same host and volume, which has one mode."""
    return (one.initiator, one.volume_id) == (other.initiator, other.volume_id)
