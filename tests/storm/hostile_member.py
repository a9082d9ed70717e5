# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A member of a project of its own, who wants what others have, and sends nonsense.

It knows the id of everything. No request of it may be accepted, none may be answered
as by a fault of the node, and the others must not notice it: their checks go on.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from typing import Any

from tests.api.foreign_requests import IN_BODY, IN_PATH, Request
from tests.storm.api import Answer, Api
from tests.storm.client import Client, Shared
from tests.storm.hosts import connector

NAME, PROJECT = "mallory", "black"
_REST = 0.02
_KNOWN = ("volume", "snapshot", "attachment")
_PLACE = re.compile(r"{(?:second |third |fourth )?(\w+)}")
_REFUSALS = frozenset({400, 403, 404, 405, 409, 411, 413, 414, 415, 431})
_LONG = ",".join(f"host-{number}" for number in range(10_000))
_VICTIM = "iqn.2020-01.org.storm:h0a"
_HOSTS = [connector(f"iqn.2020-01.org.storm:m{number}") for number in range(501)]
_VOLUME, _ATTACHMENT = "/volumes/{volume}", "/attachments/{attachment}"

#: What nobody is allowed, or what has no meaning.
_NONSENSE: list[Request] = [
    ("PUT", f"/lunshare/fences/{_VICTIM}", {"fence": {}}),
    ("PUT", "/lunshare/fences/h0a", {"fence": {"writes_only": True}}),
    ("DELETE", f"/lunshare/fences/{_VICTIM}", None),
    ("GET", "/lunshare/hosts", None),
    ("POST", f"{_VOLUME}/metadata", {"metadata": {"lunshare:writers": _LONG}}),
    ("POST", f"{_VOLUME}/metadata", {"metadata": {"lunshare:max_writers": "0"}}),
    ("DELETE", f"{_VOLUME}/metadata/lunshare:max_writers", None),
    ("PUT", _ATTACHMENT, {"attachment": {"mode": "ro"}}),
    ("PUT", _ATTACHMENT, {"attachment": {"mode": "rw", "lease": {"ttl": 86_400}}}),
    ("PUT", _ATTACHMENT, {"attachment": {"mode": "rw", "lease": {"ttl": -1}}}),
    ("PUT", f"{_ATTACHMENT}/lease", {"lease": {"ttl": 10**30}}),
    ("DELETE", _ATTACHMENT, None),
    ("DELETE", _VOLUME, None),
    ("POST", f"{_VOLUME}/action", {"lunshare:handover": {"to": "x" * 5000}}),
    ("POST", f"{_VOLUME}/action", {"lunshare:attach": {"key": "k", "hosts": _HOSTS}}),
    ("POST", f"{_VOLUME}/action", {"lunshare:detach": {"attachments": ["{volume}"]}}),
    ("POST", f"{_VOLUME}/action", {"lunshare:nothing": [[[[[]]]]]}),
    ("POST", "/attachments", {"attachment": {"volume_uuid": "{volume}", "mode": 7}}),
    ("POST", "/attachments", [{"attachment": None}]),
    ("PATCH", "/volumes/{volume}", {}),
]


def _names_others(request: Request) -> bool:
    """Whether all that it names is of the others, and some of it is."""
    names = set(_PLACE.findall(f"{request[1]} {request[2]}"))
    return bool(names) and names <= set(_KNOWN)


REQUESTS = [*filter(_names_others, (*IN_PATH, *IN_BODY)), *_NONSENSE]


class HostileMember:
    """A thread that sends these for as long as the clients work."""

    def __init__(self, shared: Shared, victims: list[Client]) -> None:
        self._rng = random.Random(f"{shared.seed}/{NAME}")
        self._journal, self._world = shared.journal, shared.world
        self._api, self._victims = Api(shared.listen, shared.journal, NAME), victims
        self.answers: Counter[int | None] = Counter()

    def run(self, stop: threading.Event) -> None:
        """Send until it is stopped."""
        while not stop.wait(_REST):
            if self._world.alive.is_set():
                self.send(self._rng.choice(REQUESTS))

    def send(self, request: Request) -> None:
        """Send one, with ids of others, and check how it is refused."""
        ids = self._ids()
        method, path, body = (_filled(part, ids) for part in request)
        answer = self._api.answer(method, f"/v3{path}", body)
        self.answers[answer.status] += 1
        if (why := fault(answer)) is not None:
            sentence = (
                f"{method} {path} of a stranger was answered {answer.status}: {why}"
            )
            self._journal.find("a hostile member is refused", sentence, ids["volume"])

    def _ids(self) -> dict[str, str]:
        nobodys = "00000000-0000-4000-8000-000000000000"
        rows = [row.id for client in self._victims for row in list(client.attached)]
        some = (self._world.volumes(), self._world.snapshots(), rows)
        found = (self._rng.choice(ids) if ids else nobodys for ids in some)
        return dict(zip(_KNOWN, found, strict=True))

    def __str__(self) -> str:
        counted = sorted(self.answers.items(), key=str)
        shown = ", ".join(f"{n} x {status or 'no answer'}" for status, n in counted)
        return f"a hostile member sent {self.answers.total()} requests ({shown})"


def fault(answer: Answer) -> str | None:
    """Return what is wrong with the answer to a request that must be refused."""
    if answer.status is None or answer.status == 503:
        return None  # the daemon was killed, or is busy
    if answer.status in _REFUSALS:
        return None if answer.message else "it does not say why"
    return f"{answer.message or answer.body!r:.200}"


def _filled(part: Any, ids: dict[str, str]) -> Any:
    if isinstance(part, str):
        return _PLACE.sub(lambda found: ids[found[1]], part)
    if isinstance(part, list):
        return [_filled(each, ids) for each in part]
    if isinstance(part, dict):
        return {key: _filled(each, ids) for key, each in part.items()}
    return part
