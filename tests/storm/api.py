# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One client's side of the API: requests, and what every answer must be like."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from tests.api.identity_daemon import PASSWORD, proof
from tests.storm.journal import Journal, Op

VERSION = "volume 3.71"
#: Seconds after which a request without an answer is a finding.
PATIENCE = 120.0
_SUCCESS = frozenset({200, 202, 204})
_REFUSALS = frozenset({400, 404, 409, 413})
_UNAVAILABLE = 503
#: A word in the errors of the storage that the storm caused.
PROVOKED = "storm"


class Answer:
    """Status, headers and the parsed body; ``status`` is None without an answer."""

    def __init__(self, status: int | None, body: Any = None, why: str = "") -> None:
        self.status, self.body, self.why = status, body, why

    @property
    def good(self) -> bool:
        return self.status in _SUCCESS

    @property
    def message(self) -> str:
        """The sentence of an error; of a node that is not ready, its problems."""
        if self.status is None:
            return self.why
        if not self.good and isinstance(self.body, dict):
            if self.body.get("ready") is False:
                return "; ".join(self.body["problems"])
            for fault in self.body.values():
                if isinstance(fault, dict):
                    return str(fault.get("message", ""))
        return ""


class Api:
    """Requests over one connection, which is opened again when it breaks."""

    def __init__(self, listen: str, journal: Journal, user: str) -> None:
        self._listen, self._journal = listen, journal
        self._proof = proof(user, PASSWORD)
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, op: Op | None, method: str, path: str, body: object = None) -> Answer:
        """Ask; with ``op`` the answer is noted there, and checked."""
        answer = self.answer(method, path, body)
        if op is not None:
            op.answered, op.status = time.monotonic(), answer.status
            op.error = answer.message
        self._check(op, method, path, answer)
        return answer

    def answer(self, method: str, path: str, body: object) -> Answer:
        """Ask without a check of the answer."""
        headers = {"OpenStack-API-Version": VERSION, **self._proof}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    self._listen, timeout=PATIENCE
                )
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Answer(None, why=f"{type(error).__name__}: {error}")
        if response.getheader("Connection") == "close":
            self.close()
        return Answer(response.status, _parsed(raw))

    def _check(self, op: Op | None, method: str, path: str, answer: Answer) -> None:
        objects = tuple(op.objects) if op else tuple(path.split("/")[3:4])
        if (why := undocumented(answer)) is not None:
            sentence = f"{method} {path} was answered {answer.status}: {why}"
            self._journal.find("every answer is a documented one", sentence, *objects)

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def undocumented(answer: Answer) -> str | None:
    """Why the answer is not a documented one; None if it is."""
    if answer.status is None:
        return answer.why if "timed out" in answer.why else None
    if isinstance(answer.body, bytes):
        return f"its body is not JSON: {answer.body[:200]!r}"
    if answer.good:
        return None
    if not answer.message:
        return f"its body has no message: {answer.body!r:.200}"
    if answer.status in _REFUSALS or answer.status == _UNAVAILABLE:
        return None
    provoked = answer.status == 500 and PROVOKED in answer.message
    return None if provoked else answer.message


def _parsed(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw
