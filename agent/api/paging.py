# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The query of a list: page, order and filters in, links to the next page out.

https://docs.openstack.org/api-ref/block-storage/v3/ (limit, marker, offset,
sort, with_count, all_tenants).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from lunshare.agent.api import microversions, query
from lunshare.agent.api.exchange import Call, Version
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import Page

_OFFSET_MAX = 2**31 - 1
_SORTING = frozenset({"sort", "sort_key", "sort_dir"})
_WORDS = _SORTING | {
    "limit",
    "marker",
    "offset",
    "with_count",
    "all_tenants",
    "project_id",
}
_NO_COLUMN = ""
_HELD_KEYS = ("id", "name", "is_public")
_DIRECTIONS = {"asc": False, "desc": True}

Sort = tuple[tuple[str, bool], ...]


class Row(Protocol):
    """Anything a list shows."""

    @property
    def id(self) -> str:
        """What a marker names."""


R = TypeVar("R", bound=Row)


def page(call: Call) -> Page:
    """What page of which rows the client asks for.

    A limit above the node's own is cut to it; 0 asks for nothing.

    :raises Invalid: names the parameter and what to give.
    """
    asked, narrowed = call.query, filters(call.query, call.version)
    everyone = query.flag(asked, "all_tenants", False) and call.ctx.is_admin
    project = asked.get("project_id", None if everyone else call.ctx.project_id)
    if not everyone and project != call.ctx.project_id:
        narrowed[_NO_COLUMN] = query.NOTHING
    return Page(
        project_id=project,
        limit=limit(asked, call.settings.max_limit),
        marker=asked.get("marker"),
        offset=query.number(asked, "offset", 0, _OFFSET_MAX),
        sort=sort(asked),
        filters=narrowed,
    )


def limit(asked: Mapping[str, str], most: int) -> int:
    """How many rows a page has at most."""
    return min(query.number(asked, "limit", most, None), most)


def sort(asked: Mapping[str, str]) -> Sort:
    """The order, newest first unless the client says otherwise.

    Keys are not judged here: who owns the columns does that.
    """
    if "sort" not in asked:
        old = (asked.get("sort_key", "created_at"), asked.get("sort_dir", "desc"))
        return _order([old])
    if "sort_key" in asked or "sort_dir" in asked:
        raise Invalid("sort cannot go with sort_key or sort_dir: use sort alone.")
    pairs = [item.strip().partition(":") for item in asked["sort"].split(",")]
    return _order([(key, way if colon else "desc") for key, colon, way in pairs])


def sorts(asked: Mapping[str, str]) -> bool:
    """Whether the client says anything of the order."""
    return not _SORTING.isdisjoint(asked)


def _order(pairs: list[tuple[str, str]]) -> Sort:
    keys = [key for key, _ in pairs]
    if not all(keys) or len(set(keys)) != len(keys):
        raise Invalid("sort must name each key once, as in sort=name:asc,size.")
    for _, way in pairs:
        if way not in _DIRECTIONS:
            raise Invalid("sort direction must be asc or desc.")
    return tuple((key, _DIRECTIONS[way]) for key, way in pairs)


def filters(asked: Mapping[str, str], version: Version) -> dict[str, Any]:
    """Every parameter that is not about the page, with its value as rows have it.

    A key no row has is kept: it lets nothing through, as in Cinder. So does
    ``name~`` (containing) in a version that does not know it yet.
    """
    found = {
        key: query.wanted(key, value, version)
        for key, value in asked.items()
        if key not in _WORDS
    }
    if version < microversions.LIKE_FILTERS and any(k.endswith("~") for k in found):
        found[_NO_COLUMN] = query.NOTHING
    return found


def more(call: Call, noun: str, page: Page, rows: Sequence[Row]) -> dict[str, Any]:
    """The link to the next page, for a page that is full."""
    if not rows or len(rows) < page.limit:
        return {}
    asked = {key: value for key, value in call.query.items() if key != "offset"}
    asked["marker"] = rows[-1].id
    href = f"{call.base}{call.path}?{urlencode(asked)}"
    return {f"{noun}_links": [{"rel": "next", "href": href}]}


def cut(
    call: Call, page: Page, rows: Sequence[R], keys: Sequence[str] = _HELD_KEYS
) -> list[R]:
    """One page of rows that are all at hand, in their own order unless told.

    ``keys`` are those of their fields that they may be sorted by.

    :raises NotFound: the marker is no row's id.
    :raises Invalid: a sort key is not one of theirs.
    """
    ordered = list(rows)
    for key, down in reversed(page.sort) if sorts(call.query) else ():
        if key not in keys:
            raise Invalid(f"sort: use {' or '.join(keys)}.")
        ordered.sort(key=attrgetter(key), reverse=down)
    start = page.offset
    if page.marker is not None:
        ids = [row.id for row in ordered]
        if page.marker not in ids:
            raise NotFound("marker", page.marker)
        start += ids.index(page.marker) + 1
    return ordered[start : start + page.limit]


def counts(call: Call) -> bool:
    """Whether the client wants to know how many rows all pages have together."""
    return query.flag(call.query, "with_count", False) and (
        call.version >= microversions.LIST_COUNT
    )
