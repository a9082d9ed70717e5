# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts: which host has which volume, in which mode, with which session."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import query
from lunshare.agent.api.views import operator_views


def index(call: Call) -> Answer:
    """GET /lunshare/hosts: list the hosts of all volumes, or of volume_id"""
    parameters = query.only(call.query, "volume_id")
    hosts = call.services.hosts.list(call.ctx, parameters.get("volume_id"))
    return Answer(200, {"hosts": [operator_views.host(host) for host in hosts]})
