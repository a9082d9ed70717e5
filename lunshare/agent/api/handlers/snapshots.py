# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import bodies, paging, query, schemas
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import NewSnapshot, Page, Snapshot

_EXTENDED = "os-extended-snapshot-attributes:"


def create(call: Call) -> Answer:
    """POST /snapshots: create a snapshot"""
    fields = bodies.short_names(schemas.SNAPSHOT_CREATE.read(call)["snapshot"])
    new = NewSnapshot(
        volume_id=(fields["volume_id"] or "").lower(),
        name=fields.get("name"),
        description=fields.get("description"),
        metadata=fields.get("metadata") or {},
        in_use=_in_use(call, fields),
    )
    return _one(call, call.services.snapshots.create(call.ctx, new), 202)


def index(call: Call) -> Answer:
    """GET /snapshots: list snapshots, brief"""
    return _list(call, volume_views.snapshot_brief)


def detail(call: Call) -> Answer:
    """GET /snapshots/detail: list snapshots in full"""
    return _list(call, volume_views.snapshot_shown)


def show(call: Call) -> Answer:
    """GET /snapshots/{id}: show one snapshot"""
    snapshot = call.services.snapshots.get(call.ctx, call.args["id"])
    view = volume_views.snapshot_shown(snapshot, call.version)
    return Answer(200, {"snapshot": _seen(call, view)})


def update(call: Call) -> Answer:
    """PUT /snapshots/{id}: change name, description or metadata"""
    changes = bodies.short_names(schemas.SNAPSHOT_UPDATE.read(call)["snapshot"])
    if changes.get("metadata", {}) is None:
        del changes["metadata"]
    snapshot = call.services.snapshots.update(call.ctx, call.args["id"], changes)
    return _one(call, snapshot, 200)


def delete(call: Call) -> Answer:
    """DELETE /snapshots/{id}: delete a snapshot"""
    call.services.snapshots.delete(call.ctx, call.args["id"])
    return Answer(202)


def _in_use(call: Call, fields: Mapping[str, Any]) -> bool:
    """Return whether the volume may be in use: always from 3.66 on, else ``force``."""
    text = fields.get("force")
    is_always = call.version >= microversions.SNAPSHOT_IN_USE
    force = is_always if text is None else query.boolean("snapshot.force", str(text))
    if is_always and not force:
        raise Invalid("snapshot.force: leave it out; it is always true from 3.66 on.")
    return force


def _one(call: Call, snapshot: Snapshot, status: int) -> Answer:
    return Answer(status, {"snapshot": volume_views.snapshot(snapshot, call.version)})


def _seen(call: Call, view: volume_views.View) -> volume_views.View:
    """Return the view without what this client may not see."""
    if not call.shows("volume_extension:extended_snapshot_attributes"):
        for key in [name for name in view if name.startswith(_EXTENDED)]:
            del view[key]
    return view


def _page(call: Call) -> Page:
    page = paging.with_backend(call, paging.page(call, "snapshot"))
    if call.version >= microversions.SNAPSHOT_METADATA_FILTER:
        return page
    filters = {key: value for key, value in page.filters.items() if key != "metadata"}
    return replace(page, filters=filters)


def _list(call: Call, view: Callable[[Snapshot, Any], volume_views.View]) -> Answer:
    page, counts = _page(call), paging.counts(call)
    rows = call.services.snapshots.list(call.ctx, page)
    body: dict[str, Any] = {
        "snapshots": [_seen(call, view(row, call.version)) for row in rows]
    }
    body |= paging.more(call, "snapshots", rows)
    if counts:
        body["count"] = call.services.snapshots.count(call.ctx, page)
    return Answer(200, body)
