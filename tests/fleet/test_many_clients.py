# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder with lunshare's driver: many clients at once on one volume."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from random import Random

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.stack import THIN, Stack
from tests.fleet.transcript import modes, say
from tests.stands.waiting import until

_SECONDS, _CLIENTS = 15.0, 8
#: Hosts by the mode of their attachments.
_HOSTS = {"rw": ("w0", "w1", "w2"), "ro": ("r0", "r1")}
_ROWS = (
    "SELECT id, attach_mode, attach_status, connector FROM volume_attachment"
    " WHERE NOT deleted AND volume_id = '{}'"
)
_DIRECT = (
    "SELECT `key`, value FROM volume_admin_metadata"
    " WHERE NOT deleted AND volume_id = '{}' AND `key` LIKE 'lunshare:direct:%'"
)


class Crowd:
    """Clients of one volume: each request is a random one."""

    def __init__(self, stack: Stack, volume: str) -> None:
        self._stack, self._volume = stack, volume
        self._known = list[tuple[str, str]]()  # attachments and their modes
        self._end = time.monotonic() + _SECONDS
        self.answers = Counter[str]()
        self.writing_readers = set[str]()

    def run(self) -> None:
        """Let them work, and watch the target."""
        threads = [
            threading.Thread(target=self._work, args=(number,))
            for number in range(_CLIENTS)
        ]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            found = modes(self._stack, self._volume)
            self.writing_readers |= {
                name for name in _HOSTS["ro"] if found.get(name) == "rw"
            }
        for each in threads:
            each.join()

    def wanted(self) -> dict[str, str]:
        """The mode of each host, as Cinder's database has it."""
        found = dict[str, str]()
        for key, mode in self._rows(_DIRECT):
            found[key.rpartition(":")[2]] = mode
        for _, mode, status, connector in self._rows(_ROWS):
            if status in ("attaching", "attached") and connector != "NULL":
                name = json.loads(connector)["host"]
                found[name] = "rw" if "rw" in (mode, found.get(name)) else "ro"
        return found

    def direct(self) -> dict[str, str]:
        """The wanted modes of the hosts that no attachment ever names.

        Another host may be there for up to 10 s: the driver has opened its connection,
        and waits for an attachment that was deleted at that moment.
        """
        return {name: each for name, each in self.wanted().items() if name[0] == "d"}

    def attachments(self) -> list[str]:
        """Every attachment."""
        return [row[0] for row in self._rows(_ROWS)]

    def _rows(self, query: str) -> list[list[str]]:
        found = self._stack.database.execute(query.format(self._volume))
        return [line.split("\t") for line in found.splitlines()]

    def _work(self, number: int) -> None:
        chances, client = Random(number), self._stack.client()
        verbs: list[Callable[[Client, Random], None]] = [
            *(self._attach, self._attach_at_once, self._detach, self._detach),
            *(self._connect_again, self._extend, self._snapshot, self._direct),
        ]
        while time.monotonic() < self._end:
            verb = chances.choice(verbs)
            try:
                verb(client, chances)
                self.answers[f"{verb.__name__} ok"] += 1
            except (RuntimeError, AssertionError) as error:  # refused, or in error
                self.answers[f"{verb.__name__} {str(error)[:60]}"] += 1
            except (OSError, HTTPException):
                client.close()

    def _host(self, chances: Random) -> tuple[str, str]:
        mode = chances.choice(["rw", "ro"])
        return chances.choice(_HOSTS[mode]), mode

    def _attach(self, client: Client, chances: Random) -> None:
        host, mode = self._host(chances)
        attachment = api.reserve(client, self._volume, mode)
        self._known.append((attachment, mode))
        api.connect(client, attachment, host)

    def _attach_at_once(self, client: Client, chances: Random) -> None:
        host, mode = self._host(chances)
        attachment, _ = api.attach_at_once(client, self._volume, host, mode)
        self._known.append((attachment, mode))

    def _detach(self, client: Client, chances: Random) -> None:
        if self._known:
            api.detach(client, chances.choice(self._known[-_CLIENTS:])[0])

    def _connect_again(self, client: Client, chances: Random) -> None:
        """Perhaps to another host, and perhaps while it is being deleted."""
        if self._known:
            attachment, mode = chances.choice(self._known[-_CLIENTS:])
            api.connect(client, attachment, chances.choice(_HOSTS[mode]))

    def _extend(self, client: Client, chances: Random) -> None:
        size = api.show(client, self._volume)["size"]
        api.act(client, self._volume, "os-extend", {"new_size": size + 1})

    def _snapshot(self, client: Client, chances: Random) -> None:
        client("DELETE", f"/snapshots/{api.snapshot(client, self._volume)}")

    def _direct(self, client: Client, chances: Random) -> None:
        sent = {"connector": api.connector(f"d{chances.randrange(_CLIENTS)}")}
        api.act(client, self._volume, "os-initialize_connection", sent)
        api.act(client, self._volume, "os-terminate_connection", sent)


def test_target_is_what_the_rows_say_after_many_clients(
    stack: Stack, client: Client
) -> None:
    volume = api.create(client, THIN)
    crowd = Crowd(stack, volume)
    crowd.run()
    say(f"{crowd.answers.total()} requests, of {len(crowd.answers)} kinds of answers")
    assert crowd.writing_readers == set()
    until(
        lambda: modes(stack, volume) == crowd.wanted(),
        "the target is what the rows say",
        60,
    )
    for attachment in crowd.attachments():
        api.detach(client, attachment)
    until(
        lambda: modes(stack, volume) == crowd.wanted() == crowd.direct(),
        "only connections without an attachment are left",
        60,
    )
