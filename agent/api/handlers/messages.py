# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""User messages: why a request of a client failed later."""

from __future__ import annotations

from lunshare.agent.api import paging, views
from lunshare.agent.api.exchange import Answer, Call


def index(call: Call) -> Answer:
    """GET /messages: list messages that have not expired"""
    page = paging.page(call)
    rows = call.services.messages.list(call.ctx, page)
    body = {"messages": [views.message(row, call.base) for row in rows]}
    return Answer(200, body | paging.more(call, "messages", page, rows))


def show(call: Call) -> Answer:
    """GET /messages/{id}: show one message"""
    found = call.services.messages.get(call.ctx, call.args["id"])
    return Answer(200, {"message": views.message(found, call.base)})


def delete(call: Call) -> Answer:
    """DELETE /messages/{id}: delete one message"""
    call.services.messages.delete(call.ctx, call.args["id"])
    return Answer(204)
