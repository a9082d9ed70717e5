# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Health checks for load balancers and supervisors. No token, no microversion.

The first two are answered from memory by the thread of the connections
(lunshare.agent.http.connection_loop), so nothing that hangs delays them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.service.metrics.recorded import CONTENT_TYPE

_FEW = 5  # sentences of one kind
#: From the first path on: a path may have blanks, so nobody knows where it ends.
_PATH = re.compile(r"(?<!\w)/+\S.*", re.DOTALL)


def alive(call: Call) -> Answer:
    """GET /healthz and /healthcheck: the process answers; nothing else is checked"""
    return Answer(200, {"status": "ok"})


def ready(call: Call) -> Answer:
    """GET /readyz: 503 with a sentence for each problem

    Of each kind that the last reconcile found it returns the first few and their
    number, each up to its first path. /v3/lunshare/health returns all of them.
    """
    health = call.services.node.health()
    lists = {"failed": health.failed, "unknown": health.unknown}
    problems = [_without_paths(problem) for problem in health.problems]
    body: dict[str, Any] = {"ready": health.ready, "problems": problems}
    body |= {name: _few(sentences) for name, sentences in lists.items()}
    body["counts"] = {name: len(sentences) for name, sentences in lists.items()}
    return Answer(200 if health.ready else 503, body)


def full(call: Call) -> Answer:
    """GET /lunshare/health: all that the last reconcile found"""
    health = call.services.node.health()
    body = {
        "ready": health.ready,
        "problems": list(health.problems),
        "failed": list(health.failed),
        "unknown": list(health.unknown),
        "portals": [
            {
                "backend": backend,
                "open": guard.open,
                "refused": guard.refused,
                "sources": list(guard.sources),
            }
            for backend, guard in health.portals.items()
        ],
    }
    return Answer(200, {"health": body})


def metrics(call: Call) -> Answer:
    """GET /lunshare/metrics (and /metrics): figures in the format of Prometheus"""
    return Answer(200, call.services.metrics.page(), {"Content-Type": CONTENT_TYPE})


def _few(sentences: Iterable[str]) -> list[str]:
    """Return the first few of each kind. A kind starts with the same word."""
    numbers: dict[str, int] = {}
    few = []
    for sentence in sentences:
        kind = sentence.partition(" ")[0]
        numbers[kind] = numbers.get(kind, 0) + 1
        if numbers[kind] <= _FEW:
            few.append(_without_paths(sentence))
    return few


def _without_paths(sentence: str) -> str:
    """Return it up to a path: where files and disks are is for administrators."""
    return _PATH.sub("(path)", sentence)
