# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What load balancers and supervisors ask; no token, no microversion."""

from __future__ import annotations

from agent.api.exchange import Answer, Call


def alive(call: Call) -> Answer:
    """GET /healthz and /healthcheck: the process answers, nothing more is looked at"""
    return Answer(200, {"status": "ok"})


def ready(call: Call) -> Answer:
    """GET /readyz: 503 with a sentence for each thing that keeps us from working"""
    health = call.services.node.health()
    body = {
        "ready": health.ready,
        "problems": list(health.problems),
        "failed": list(health.failed),
        "unknown": list(health.unknown),
    }
    return Answer(200 if health.ready else 503, body)
