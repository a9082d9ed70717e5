# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lunshare.agent.api import microversions, missing_features
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import bodies, paging, query, schemas
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.errors import Forbidden, Invalid
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.records import NewVolume, Page, Volume

_HINTS = "OS-SCH-HNT:scheduler_hints"
_ID_MAX = 36
_RULE_OF_FIELD = {
    "os-vol-host-attr:host": "volume_extension:volume_host_attribute",
    "os-vol-mig-status-attr:migstat": "volume_extension:volume_mig_status_attribute",
    "os-vol-mig-status-attr:name_id": "volume_extension:volume_mig_status_attribute",
    "os-vol-tenant-attr:tenant_id": "volume_extension:volume_tenant_attribute",
    "volume_image_metadata": "volume_extension:volume_image_metadata:show",
}
_ADMIN_FIELDS = frozenset({"migration_status", "provider_id", "cluster_name"})


def create(call: Call) -> Answer:
    """POST /volumes: create a volume, empty or from a snapshot or a volume"""
    body = schemas.VOLUME_CREATE.read(call)
    fields = bodies.short_names(body["volume"])
    _refuse_unsupported(fields)
    hints = body.get(_HINTS) or body["volume"].get(_HINTS) or {}
    new = NewVolume(
        size=_size(call, fields),
        name=fields.get("name"),
        description=fields.get("description"),
        volume_type=fields.get("volume_type") or None,
        availability_zone=fields.get("availability_zone") or None,
        metadata=fields.get("metadata") or {},
        snapshot_id=fields.get("snapshot_id") or None,
        source_volid=fields.get("source_volid") or None,
        same_host=_hinted(hints, "same_host"),
        different_host=_hinted(hints, "different_host"),
    )
    return _stored(call, call.services.volumes.create(call.ctx, new), 202)


def index(call: Call) -> Answer:
    """GET /volumes: list volumes, brief"""
    page, context = _page(call), _context(call)
    rows = call.services.volumes.names(call.ctx, page)
    return _listed(
        call, page, rows, [volume_views.volume_brief(r, context) for r in rows]
    )


def detail(call: Call) -> Answer:
    """GET /volumes/detail: list volumes in full"""
    page, context = _page(call), _context(call)
    rows = call.services.volumes.list(call.ctx, page)
    return _listed(
        call, page, rows, [volume_views.volume(row, context) for row in rows]
    )


def summary(call: Call) -> Answer:
    """GET /volumes/summary: count volumes and their GiB; from 3.36 on their metadata"""
    everyone = query.flag(call.query, "all_tenants", False) and call.ctx.is_admin
    metadata = call.version >= microversions.SUMMARY_METADATA
    summary = call.services.volumes.summary(call.ctx, everyone, metadata)
    totals: dict[str, Any] = {"total_count": summary.count, "total_size": summary.size}
    if metadata:
        totals["metadata"] = dict(summary.metadata)
    return Answer(200, {"volume-summary": totals})


def show(call: Call) -> Answer:
    """GET /volumes/{id}: show one volume"""
    volume = call.services.volumes.get(call.ctx, call.args["id"])
    return Answer(200, {"volume": volume_views.volume(volume, _context(call))})


def update(call: Call) -> Answer:
    """PUT /volumes/{id}: change name, description or metadata"""
    changes = bodies.short_names(schemas.VOLUME_UPDATE.read(call)["volume"])
    if changes.get("metadata", {}) is None:
        del changes["metadata"]
    volume = call.services.volumes.update(call.ctx, call.args["id"], changes)
    return _stored(call, volume, 200)


def delete(call: Call) -> Answer:
    """DELETE /volumes/{id}: delete a volume"""
    cascade = query.flag(call.query, "cascade", False)
    force = query.flag(call.query, "force", False)
    if call.version < microversions.DELETE_FORCE:
        force = False
    if force and not call.allows("volume:force_delete"):
        raise Forbidden("volume:force_delete")
    call.services.volumes.delete(
        call.ctx, call.args["id"], force=force, cascade=cascade
    )
    return Answer(202)


def _hinted(hints: Any, name: str) -> tuple[str, ...]:
    """Return the ids of volumes of a scheduler hint; a client may send one or more.

    Other hints are for parts of a cloud that this node is not, and are ignored.
    """
    value = hints.get(name) if isinstance(hints, Mapping) else None
    ids = value if isinstance(value, list) else [value] if value else []
    if not all(isinstance(ident, str) and len(ident) <= _ID_MAX for ident in ids):
        raise Invalid(f"{_HINTS}.{name}: give the id of a volume, or a list of ids.")
    return tuple(ids)


def _size(call: Call, fields: Mapping[str, Any]) -> int | None:
    """Return the size, which is optional for a volume with a source.

    A source that does not exist is reported before an invalid size.
    """
    if fields.get("snapshot_id"):
        call.services.snapshots.get(call.ctx, fields["snapshot_id"])
    elif fields.get("source_volid"):
        call.services.volumes.get(call.ctx, fields["source_volid"])
    else:
        return query.gib("volume.size", fields.get("size"))
    size = fields.get("size")
    return None if size is None else query.gib("volume.size", size)


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Refuse fields that this node does not support."""
    for key, what in missing_features.FIELDS.items():
        if fields.get(key):
            raise Invalid(f"volume.{key}: {what.sentence}")
    if query.boolean("volume.multiattach", str(fields.get("multiattach") or False)):
        raise Invalid(
            "volume.multiattach: leave it out and give a volume_type whose extra"
            " spec multiattach is '<is> True'."
        )


def _context(call: Call) -> volume_views.ViewContext:
    return volume_views.ViewContext(
        call.version,
        call.root,
        call.project,
        call.services.node.host_of,
        hidden=_hidden(call),
        names_hosts=call.ctx.is_admin or call.ctx.is_service,
    )


def _hidden(call: Call) -> frozenset[str]:
    """Return the fields of volumes that this client may not see."""
    if call.ctx.is_admin:
        return frozenset()
    refused = {rule for rule in _RULE_OF_FIELD.values() if not call.shows(rule)}
    ruled = {key for key, rule in _RULE_OF_FIELD.items() if rule in refused}
    return _ADMIN_FIELDS | ruled


def _stored(call: Call, volume: Volume, status: int) -> Answer:
    return Answer(
        status, {"volume": volume_views.stored_volume(volume, _context(call))}
    )


def _page(call: Call) -> Page:
    page = paging.page(call, "volume")
    if call.version < microversions.IMAGE_METADATA_FILTER:
        filters = dict(page.filters)
        filters.pop("glance_metadata", None)
        page = replace(page, filters=filters)
    return paging.with_backend(call, page)


def _listed(
    call: Call, page: Page, rows: PageRows[Any], shown: list[volume_views.View]
) -> Answer:
    body: dict[str, Any] = {"volumes": shown}
    body |= paging.more(call, "volumes", rows)
    if paging.counts(call):
        body["count"] = call.services.volumes.count(call.ctx, page)
    return Answer(200, body)
