# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Wipes of deleted volumes. Cinder has no such resource."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.views import volume_views


def index(call: Call) -> Answer:
    """GET /lunshare/wipes: list what is left to wipe"""
    wipes = call.services.wiper.list(call.ctx)
    return Answer(200, {"wipes": [volume_views.wipe(wipe) for wipe in wipes]})
