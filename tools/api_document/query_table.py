# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which handler reads which parameters of the query: one table.

A test compares it with the parameters that the handlers name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Handler, Version
from lunshare.agent.api.handlers import (
    attachments,
    catalog,
    fences,
    manageable,
    messages,
    operator_resources,
    qos,
    quotas,
    services,
    snapshots,
    transfers,
    types,
    volumes,
)
from lunshare.agent.api.requests import paging, resource_filters
from tools.api_document.answer_parts import FLAG, ID, TEXT, Schema, words


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: what it does, its schema, and its first microversion."""

    name: str
    what: str
    schema: Schema = field(default_factory=lambda: TEXT)
    since: Version = microversions.MIN
    required: bool = False


_ALL_TENANTS = Parameter("all_tenants", "those of all projects", FLAG)
_COUNT = Parameter(
    "with_count", "also count the rows of all pages", FLAG, microversions.LIST_COUNT
)
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
_PAGE = (
    Parameter("limit", "at most so many rows", _WHOLE),
    Parameter("marker", "the id of the last row of the page before"),
    Parameter(
        "offset", "leave out so many rows", {**_WHOLE, "maximum": paging.OFFSET_MAX}
    ),
    Parameter("sort", "the order, such as name:asc,size"),
    Parameter("sort_key", "a key to sort by, without sort"),
    Parameter("sort_dir", "its direction", words(paging.DIRECTIONS)),
    _ALL_TENANTS,
    Parameter("project_id", "those of a project"),
)
_MESSAGE_PAGE = tuple(
    Parameter(entry.name, entry.what, entry.schema, microversions.MESSAGE_PAGES)
    for entry in _PAGE
)
#: Filters with a schema or a microversion of their own.
_FILTERS: Mapping[str, Parameter] = {
    "created_at": Parameter(
        "created_at", "from 3.60 on comparisons, such as gt:2026-01-31T12:00:00"
    ),
    "updated_at": Parameter("updated_at", "as created_at"),
    "metadata": Parameter("metadata", "items that it has: {'key': 'value'}"),
    "extra_specs": Parameter(
        "extra_specs",
        "extra specs that it has: {'key': 'value'}",
        since=microversions.TYPE_SPEC_FILTER,
    ),
    "is_public": Parameter("is_public", "public types (true), others, or none for all"),
}
_FOREIGN_HOST = Parameter("host", "host@backend, or host@backend#pool", required=True)
_TYPE_ID = Parameter("vol_type_id", "the id of a volume type", required=True)
_FORCE = Parameter("force", "also in another status", FLAG, microversions.DELETE_FORCE)


def _list(resource: str, *more: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of a list with filters."""
    names = resource_filters.FILTERS[resource]
    filters = [_FILTERS.get(name, Parameter(name, "filter")) for name in names]
    return (*_PAGE, *more, *filters)


PARAMETERS: Mapping[Handler, tuple[Parameter, ...]] = {
    volumes.index: _list("volume", _COUNT),
    volumes.detail: _list("volume", _COUNT),
    volumes.summary: (_ALL_TENANTS,),
    volumes.delete: (
        Parameter("cascade", "delete its snapshots too", FLAG),
        _FORCE,
    ),
    snapshots.index: _list("snapshot", _COUNT),
    snapshots.detail: _list("snapshot", _COUNT),
    attachments.index: _list("attachment"),
    attachments.detail: _list("attachment"),
    attachments.delete: (
        Parameter("force", "also of a host with a reservation key", FLAG),
    ),
    transfers.index: _PAGE,
    transfers.detail: _PAGE,
    messages.index: (*_MESSAGE_PAGE, *_list("message")[len(_PAGE) :]),
    types.index: (*_list("volume_type"), Parameter("name", "filter")),
    manageable.volumes: (*_PAGE, _FOREIGN_HOST),
    manageable.volumes_detail: (*_PAGE, _FOREIGN_HOST),
    manageable.snapshots: (*_PAGE, _FOREIGN_HOST),
    manageable.snapshots_detail: (*_PAGE, _FOREIGN_HOST),
    services.index: (Parameter("host", "filter"), Parameter("binary", "filter")),
    services.pools: (
        Parameter("detail", "with their capabilities", FLAG),
        Parameter("name", "filter", since=microversions.POOL_FILTERS),
        Parameter(
            "volume_type",
            "those that a volume type fits",
            since=microversions.POOL_TYPE_FILTER,
        ),
    ),
    catalog.filters: (Parameter("resource", "those of one resource"),),
    qos.index: (
        *_PAGE,
        *(Parameter(name, "filter") for name in ("id", "name", "consumer")),
    ),
    qos.delete: (Parameter("force", "also while volume types have them", FLAG),),
    qos.associate: (_TYPE_ID,),
    qos.disassociate: (_TYPE_ID,),
    quotas.show: (Parameter("usage", "also what is used", FLAG),),
    quotas.limits: tuple(
        Parameter(name, "another project", since=microversions.LIMITS_OF_PROJECT)
        for name in ("project_id", "tenant_id")
    ),
    operator_resources.hosts: (
        Parameter("volume_id", "those of one volume", ID),
        _PAGE[0],
        Parameter("marker", "that of the link of the page before"),
    ),
    fences.index: (
        _PAGE[0],
        Parameter("marker", "the last host of the page before"),
    ),
}
