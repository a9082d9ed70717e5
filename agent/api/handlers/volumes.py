# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lunshare.agent.api import bodies, microversions, paging, query, schemas, views
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.errors import Invalid
from lunshare.agent.records import NewVolume, Page, Volume

# A later floor offers them; until then nobody is to believe they were heard.
_NOT_OFFERED = ("backup_id", "imageRef", "image_id", "consistencygroup_id", "group_id")


def create(call: Call) -> Answer:
    """POST /volumes"""
    asked = bodies.plain_names(schemas.VOLUME_CREATE.read(call)["volume"])
    _refuse(asked)
    new = NewVolume(
        size=_size(call, asked),
        name=asked.get("name"),
        description=asked.get("description"),
        volume_type=asked.get("volume_type") or None,
        availability_zone=asked.get("availability_zone") or None,
        metadata=asked.get("metadata") or {},
        snapshot_id=asked.get("snapshot_id") or None,
        source_volid=asked.get("source_volid") or None,
    )
    return _written(call, call.services.volumes.create(call.ctx, new), 202)


def index(call: Call) -> Answer:
    """GET /volumes"""
    return _list(call, views.volume_brief, detail=False)


def detail(call: Call) -> Answer:
    """GET /volumes/detail"""
    return _list(call, views.volume, detail=True)


def show(call: Call) -> Answer:
    """GET /volumes/{id}"""
    found = call.services.volumes.get(call.ctx, call.args["id"])
    return Answer(200, {"volume": views.volume(found, _look(call))})


def update(call: Call) -> Answer:
    """PUT /volumes/{id}"""
    changes = bodies.plain_names(schemas.VOLUME_UPDATE.read(call)["volume"])
    if changes.get("metadata", {}) is None:
        del changes["metadata"]
    found = call.services.volumes.update(call.ctx, call.args["id"], changes)
    return _written(call, found, 200)


def delete(call: Call) -> Answer:
    """DELETE /volumes/{id}"""
    cascade = query.flag(call.query, "cascade", False)
    force = query.flag(call.query, "force", False)
    if call.version < microversions.DELETE_FORCE:
        force = False
    call.services.volumes.delete(
        call.ctx, call.args["id"], force=force, cascade=cascade
    )
    return Answer(202)


def _size(call: Call, asked: Mapping[str, Any]) -> int | None:
    """The size, which a volume with a source need not have.

    A source that is not there is said before anything of the size.
    """
    if asked.get("snapshot_id"):
        call.services.snapshots.get(call.ctx, asked["snapshot_id"])
    elif asked.get("source_volid"):
        call.services.volumes.get(call.ctx, asked["source_volid"])
    else:
        return query.gib("volume.size", asked.get("size"))
    size = asked.get("size")
    return None if size is None else query.gib("volume.size", size)


def _refuse(asked: Mapping[str, Any]) -> None:
    """Say of what this node does not offer that it is not heard."""
    for key in _NOT_OFFERED:
        if asked.get(key):
            raise Invalid(f"volume.{key} is not offered by this node: leave it out.")
    if query.boolean("volume.multiattach", str(asked.get("multiattach") or False)):
        raise Invalid(
            "volume.multiattach: leave it out and give a volume_type whose extra"
            " spec multiattach is '<is> True'."
        )


def _look(call: Call) -> views.Look:
    return views.Look(call.version, call.root, call.project, call.services.node.host_of)


def _written(call: Call, found: Volume, status: int) -> Answer:
    return Answer(status, {"volume": views.written_volume(found, _look(call))})


def _page(call: Call) -> Page:
    page = paging.page(call)
    if "host" not in page.filters:
        return page
    others = {key: value for key, value in page.filters.items() if key != "host"}
    return replace(page, filters=others | _placed(call, page.filters["host"]))


def _placed(call: Call, host: str) -> dict[str, Any]:
    """The filter for a host, host@backend or host@backend#pool, as volumes show it."""
    backend = host.partition("@")[2].partition("#")[0]
    whole = call.services.node.host_of(backend)
    if host == whole.partition("@")[0]:
        return {}
    here = host in (whole, whole.partition("#")[0])
    return {"host": backend if here else query.NOTHING}


def _list(
    call: Call, view: Callable[[Volume, views.Look], views.View], detail: bool
) -> Answer:
    page, counts, look = _page(call), paging.counts(call), _look(call)
    rows = call.services.volumes.list(call.ctx, page, detail=detail)
    body: dict[str, Any] = {"volumes": [view(row, look) for row in rows]}
    body |= paging.more(call, "volumes", page, rows)
    if counts:
        body["count"] = call.services.volumes.count(call.ctx, page)
    return Answer(200, body)
