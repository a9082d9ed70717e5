# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Parse page, order and filters of a list; create the link to the next page.

https://docs.openstack.org/api-ref/block-storage/v3/ (limit, marker, offset,
sort, with_count, all_tenants).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Call, Version
from lunshare.agent.api.requests import query, resource_filters
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.page_rows import PageRows, fill
from lunshare.agent.model.records import Page, RequestContext

OFFSET_MAX = 2**31 - 1
_SORTING = frozenset({"sort", "sort_key", "sort_dir"})
_PAGE_PARAMETERS = _SORTING | {
    "limit",
    "marker",
    "offset",
    "with_count",
    "all_tenants",
    "project_id",
}
_NO_COLUMN = ""
# The keys that rows may be sorted by; the first one names a row in a marker.
_COMMON_KEYS = ("id", "name", "is_public")
_MANAGEABLE_KEYS = ("reference", "size")
DIRECTIONS = {"asc": False, "desc": True}

Sort = tuple[tuple[str, bool], ...]


class Row(Protocol):
    """An item of a list."""

    @property
    def id(self) -> str:
        """Return the id, which a marker names."""


R = TypeVar("R")


def page(call: Call, resource: str | None = None) -> Page:
    """Return the page that the client asks for.

    ``resource`` is that of ``resource_filters``; None: any filter.

    A limit above ``osapi_max_limit`` is reduced to it; 0 returns no rows.

    :raises Invalid: names the parameter and what to give.
    """
    parameters, conditions = call.query, filters(call.query, call.version)
    if resource is not None:
        admin = call.ctx.is_admin
        conditions = resource_filters.allowed(resource, conditions, admin, call.version)
    everyone = query.flag(parameters, "all_tenants", False) and call.ctx.is_admin
    project = parameters.get("project_id", None if everyone else call.ctx.project_id)
    if not everyone and project != call.ctx.project_id:
        conditions[_NO_COLUMN] = query.NOTHING
    return Page(
        project_id=project,
        limit=limit(parameters, call.settings.max_limit),
        marker=parameters.get("marker"),
        offset=query.number(parameters, "offset", 0, OFFSET_MAX),
        sort=sort(parameters),
        filters=conditions,
    )


def with_backend(call: Call, page: Page) -> Page:
    """Return the page with its filter by host as one by backend.

    The host is written as volumes show it: host, host@backend or host@backend#pool.
    """
    if "host" not in page.filters:
        return page
    others = {key: value for key, value in page.filters.items() if key != "host"}
    return replace(page, filters=others | _host_filter(call, page.filters["host"]))


def _host_filter(call: Call, host: str) -> dict[str, Any]:
    backend = host.partition("@")[2].partition("#")[0]
    full = call.services.node.host_of(backend)
    if host == full.partition("@")[0]:
        return {}
    here = backend and host in (full, full.partition("#")[0])
    return {"host": backend if here else query.NOTHING}


def limit(parameters: Mapping[str, str], most: int) -> int:
    """Return the largest number of rows of the page."""
    return min(query.number(parameters, "limit", most, None), most)


def sort(parameters: Mapping[str, str]) -> Sort:
    """Return the order; the default is newest first.

    Keys are not checked here, since only the database knows the columns.
    """
    if "sort" not in parameters:
        pair = (
            parameters.get("sort_key", "created_at"),
            parameters.get("sort_dir", "desc"),
        )
        return _order([pair])
    if "sort_key" in parameters or "sort_dir" in parameters:
        raise Invalid(
            "sort and sort_key or sort_dir exclude each other: use sort alone."
        )
    pairs = [item.strip().partition(":") for item in parameters["sort"].split(",")]
    return _order([(key, way if colon else "desc") for key, colon, way in pairs])


def sorts(parameters: Mapping[str, str]) -> bool:
    """Return whether the client asks for an order."""
    return not _SORTING.isdisjoint(parameters)


def _order(pairs: list[tuple[str, str]]) -> Sort:
    keys = [key for key, _ in pairs]
    if not all(keys) or len(set(keys)) != len(keys):
        raise Invalid("sort must name each key once, as in sort=name:asc,size.")
    for _, way in pairs:
        if way not in DIRECTIONS:
            raise Invalid("sort direction must be asc or desc.")
    return tuple((key, DIRECTIONS[way]) for key, way in pairs)


def filters(parameters: Mapping[str, str], version: Version) -> dict[str, Any]:
    """Return every parameter that is a filter, with its value in the form of rows.

    A key that no row has is included: it matches nothing, as in Cinder. So does
    ``name~`` (contains) in a version before it was added.
    """
    conditions = {
        key: query.filter_value(key, value, version)
        for key, value in parameters.items()
        if key not in _PAGE_PARAMETERS
    }
    if version < microversions.LIKE_FILTERS and any(
        k.endswith("~") for k in conditions
    ):
        conditions[_NO_COLUMN] = query.NOTHING
    return conditions


def more(
    call: Call, resource: str, rows: PageRows[Any], name: str = "id"
) -> dict[str, Any]:
    """Return the link to the next page, if this page is full.

    ``name``: the field of a row that its marker has.
    """
    if not rows or not rows.is_full:
        return {}
    parameters = {key: value for key, value in call.query.items() if key != "offset"}
    parameters["marker"] = getattr(rows[-1], name)
    href = f"{call.base}{call.path}?{urlencode(parameters)}"
    return {f"{resource}_links": [{"rel": "next", "href": href}]}


def cut(
    call: Call, page: Page, rows: Sequence[R], keys: Sequence[str] = _COMMON_KEYS
) -> PageRows[R]:
    """Return one page of ``rows``, in their order if the client asks for none.

    ``keys``: the fields that rows may be sorted by; the first one names a row.

    :raises NotFound: the marker is not the name of a row.
    :raises Invalid: a sort key is not one of ``keys``.
    """
    ordered = list(rows)
    for key, down in reversed(page.sort) if sorts(call.query) else ():
        if key not in keys:
            raise Invalid(f"sort: use {' or '.join(keys)}.")
        ordered.sort(key=attrgetter(key), reverse=down)
    start = page.offset
    if page.marker is not None:
        ids = [getattr(row, keys[0]) for row in ordered]
        if page.marker not in ids:
            raise NotFound("marker", page.marker)
        start += ids.index(page.marker) + 1
    return fill(ordered[start:], page.limit)


def manageable(
    call: Call,
    resource: str,
    find: Callable[[RequestContext, str], Sequence[R]],
    view: Callable[[R], Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a page of what a backend holds and lunshare did not create.

    :raises Invalid: the host is missing, or the page is wrong.
    """
    host = call.query.get("host")
    if not host:
        raise Invalid("host is missing: give host@backend or host@backend#pool.")
    part = page(call)
    rows = cut(call, part, find(call.ctx, host), _MANAGEABLE_KEYS)
    body: dict[str, Any] = {resource: [view(row) for row in rows]}
    return body | more(call, resource, rows, _MANAGEABLE_KEYS[0])


def counts(call: Call) -> bool:
    """Return whether the client asks for the number of rows on all pages."""
    return query.flag(call.query, "with_count", False) and (
        call.version >= microversions.LIST_COUNT
    )
