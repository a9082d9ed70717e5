# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""User messages: why a request of a client failed later."""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import paging
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.records import Page


def index(call: Call) -> Answer:
    """GET /messages: list messages that have not expired; pages and filters from 3.5"""
    if call.version < microversions.MESSAGE_PAGES:
        page = Page(call.ctx.project_id, call.settings.max_limit)
    else:
        page = paging.page(call, "message")
    rows = call.services.messages.list(call.ctx, page)
    body = {"messages": [volume_views.message(row, call.base) for row in rows]}
    return Answer(200, body | paging.more(call, "messages", rows))


def show(call: Call) -> Answer:
    """GET /messages/{id}: show one message"""
    message = call.services.messages.get(call.ctx, call.args["id"])
    return Answer(200, {"message": volume_views.message(message, call.base)})


def delete(call: Call) -> Answer:
    """DELETE /messages/{id}: delete one message"""
    call.services.messages.delete(call.ctx, call.args["id"])
    return Answer(204)
