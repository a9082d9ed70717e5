# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What load balancers and supervisors ask; no token, no microversion.

The first two are answered from memory, by the thread that has the connections
(lunshare.agent.listener): nothing that hangs may hold them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lunshare.agent.api.exchange import Answer, Call

_FEW = 5  # sentences of each kind


def alive(call: Call) -> Answer:
    """GET /healthz and /healthcheck: the process answers, nothing more is looked at"""
    return Answer(200, {"status": "ok"})


def ready(call: Call) -> Answer:
    """GET /readyz: 503 with a sentence for each thing that keeps us from working

    Of what the last reconcile found, the first few of each kind, and how many there
    are; all of them are at /v3/lunshare/health.
    """
    health = call.services.node.health()
    lists = {"failed": health.failed, "unknown": health.unknown}
    body: dict[str, Any] = {"ready": health.ready, "problems": list(health.problems)}
    body |= {name: _few(found) for name, found in lists.items()}
    body["counts"] = {name: len(found) for name, found in lists.items()}
    return Answer(200 if health.ready else 503, body)


def whole(call: Call) -> Answer:
    """GET /lunshare/health: and everything that the last reconcile found"""
    health = call.services.node.health()
    body = {
        "ready": health.ready,
        "problems": list(health.problems),
        "failed": list(health.failed),
        "unknown": list(health.unknown),
    }
    return Answer(200, {"health": body})


def _few(sentences: Iterable[str]) -> list[str]:
    """The first few of each kind: of those that begin with the same word."""
    seen: dict[str, int] = {}
    few = []
    for sentence in sentences:
        kind = sentence.partition(" ")[0]
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= _FEW:
            few.append(sentence)
    return few
