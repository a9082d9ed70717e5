# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of volumes: pages, order, filters, counts."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.api.calls import Api
from tests.stands.node import Node

NOWHERE = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def three(api: Api) -> list[dict[str, Any]]:
    """Three volumes, the oldest first."""
    return [
        api.volume(name=name, size=size, metadata={"rank": str(size)})
        for name, size in (("b", 3), ("a", 1), ("c", 2))
    ]


def names(api: Api, query: str) -> str:
    """The names of the volumes that a query lists, as one text."""
    answer = api("GET", f"/volumes/detail{query}")["volumes"]
    return "".join(volume["name"] for volume in answer)


def test_a_list_is_newest_first(api: Api, three: list[dict[str, Any]]):
    assert names(api, "") == "cab"
    short = api("GET", "/volumes")["volumes"]
    assert [set(volume) for volume in short] == [{"id", "name", "links"}] * 3
    full = api("GET", "/volumes/detail")["volumes"]
    assert full == [api("GET", f"/volumes/{v['id']}")["volume"] for v in three[::-1]]


SORTS = {
    "?sort=name": "cba",
    "?sort=name:asc": "abc",
    "?sort=display_name:asc": "abc",
    "?sort=size:desc": "bca",
    "?sort=availability_zone:asc,size:asc": "acb",
    "?sort=status,created_at:asc": "bac",
    "?sort_key=size": "bca",
    "?sort_key=size&sort_dir=asc": "acb",
}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("query", SORTS)
def test_a_list_has_the_requested_order(api: Api, query: str):
    assert names(api, query) == SORTS[query]


@pytest.mark.parametrize(
    "query",
    [
        "sort=colour",
        "sort=name:up",
        "sort=",
        "sort=name&sort_key=name",
        "sort_key=name&sort_dir=up",
        "limit=-1",
        "limit=word",
        "limit=1.5",
        "offset=-1",
        "offset=99999999999999999999",
        "with_count=perhaps",
        "all_tenants=perhaps",
        "created_at=after:2026-01-01T00:00:00",
        "created_at=gt:2026-01-01T00:00:00,",
        "metadata=rank",
        "metadata=" + quote(r"{'rank': '\ud800'}"),
        "metadata=" + quote(r"{'\udc00': '1'}"),
        "metadata=" + quote(r"{'rank': '\0'}"),
        "name=%00",
    ],
)
def test_a_bad_query_is_400_and_named(api: Api, query: str):
    sentence = api.fault(400, "GET", f"/volumes?{query}")
    word = query.partition("=")[0].partition("_")[0]
    assert word in sentence or "NUL" in sentence


@pytest.mark.usefixtures("three")
def test_pages_follow_one_another_by_their_links(api: Api):
    seen, query = "", "?limit=2&sort=name:asc"
    pages = 0
    while query:
        page = api("GET", f"/volumes/detail{query}")
        seen += "".join(volume["name"] for volume in page["volumes"])
        links = page.get("volumes_links", [])
        assert [link["rel"] for link in links] in ([], ["next"])
        query = f"?{urlsplit(links[0]['href']).query}" if links else ""
        pages += 1
    assert (seen, pages) == ("abc", 2)


@pytest.mark.parametrize("way", ["asc", "desc"])
@pytest.mark.parametrize("key", ["bootable", "multiattach"])
def test_pages_in_the_order_of_a_boolean_show_each_volume_once(
    api: Api, key: str, way: str
):
    kind = api.type(multiattach="<is> True")["id"]
    made = [api.volume(volume_type=kind if turn % 2 else None) for turn in range(5)]
    seen: list[dict[str, Any]] = []
    query = f"?limit=2&sort={key}:{way}"
    while query:
        page = api("GET", f"/volumes/detail{query}")
        seen += page["volumes"]
        links = page.get("volumes_links", [])
        query = f"?{urlsplit(links[0]['href']).query}" if links else ""
    assert sorted(v["id"] for v in seen) == sorted(v["id"] for v in made)
    values = [volume[key] for volume in seen]
    assert values == sorted(values, reverse=way == "desc")


@pytest.mark.usefixtures("three")
def test_the_link_to_the_next_page_has_the_query(api: Api):
    page = api("GET", "/volumes?limit=1&sort=name:asc&status=available&offset=1")
    (link,) = page["volumes_links"]
    url = urlsplit(link["href"])
    assert url.path == f"/v3/{api.project}/volumes"
    assert parse_qs(url.query) == {
        "limit": ["1"],
        "sort": ["name:asc"],
        "status": ["available"],
        "marker": [page["volumes"][0]["id"]],
    }


def test_a_page_starts_after_the_marker_and_the_offset(
    api: Api, three: list[dict[str, Any]]
):
    assert names(api, f"?sort=name:asc&marker={three[1]['id']}") == "bc"
    assert names(api, "?sort=name:asc&offset=2") == "c"
    assert names(api, "?sort=name:asc&offset=3") == ""
    assert names(api, "?limit=0") == ""
    assert "volumes_links" not in api("GET", "/volumes?limit=0")
    assert NOWHERE in api.fault(404, "GET", f"/volumes?marker={NOWHERE}")


FILTERS = {
    "?name=a": "a",
    "?display_name=a": "a",
    "?size=2": "c",
    "?size=big": "",
    "?status=available": "cab",
    "?status=in-use": "",
    "?bootable=false": "cab",
    "?bootable=true": "",
    "?multiattach=perhaps": "",
    "?colour=red": "",
    "?availability_zone=nova&size=3": "b",
    "?created_at=gt:2020-01-01T00:00:00": "cab",
    "?created_at=lt:2020-01-01T00:00:00": "",
    "?created_at=gt:2020-01-01T00:00:00,lt:2020-01-02T00:00:00": "",
    "?created_at=gt:2020-01-01T00:00:00,lt:9020-01-02T00:00:00": "cab",
    "?limit=" + "9" * 30: "cab",
    "?name~=b": "b",
    "?metadata=" + quote("{'rank': '1'}"): "a",
    "?metadata=" + quote("{'rank': '9'}"): "",
    "?size=1&size=2": "c",
}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("query", FILTERS)
def test_a_filter_selects_rows(api: Api, query: str):
    assert names(api, query) == FILTERS[query]


@pytest.mark.parametrize(
    "key", ['a"b', "a'b", "$", "a.b", "a[0]", "a\\b", "a\nb", "é", "\U0001f600", " "]
)
def test_a_filter_selects_by_any_metadata_key(api: Api, key: str):
    for name, value in (("a", "x"), ("b", "y")):
        api.volume(name=name, metadata={key: value, "other": "x"})
    assert names(api, "?metadata=" + quote(str({key: "x"}))) == "a"
    assert names(api, "?metadata=" + quote(str({key: "x", "other": "x"}))) == "a"
    assert names(api, "?metadata=" + quote(str({key: "x", "other": "y"}))) == ""


@pytest.mark.usefixtures("three")
def test_a_filter_selects_by_host_as_volumes_show_it(api: Api):
    shown = api("GET", "/volumes/detail")["volumes"][0]["os-vol-host-attr:host"]
    service = shown.partition("#")[0]
    host = service.partition("@")[0]
    for text in (shown, service, host):
        assert names(api, f"?host={quote(text)}") == "cab"
    for text in ("mars", f"mars@{service}", f"{shown}x", f"{host}@x", f"{host}x", ""):
        assert names(api, f"?host={quote(text)}") == ""
    counted = api("GET", f"/volumes?host={host}&size=1&with_count=1")
    assert counted["count"] == 1


def test_a_contains_filter_is_literal(api: Api):
    for name in ("50%", "500", "a_b", "aXb"):
        api.volume(name=name)
    assert names(api, "?name~=" + quote("0%")) == "50%"
    assert names(api, "?name~=a_") == "a_b"


@pytest.mark.usefixtures("three")
def test_a_contains_filter_exists_from_3_34_on(api: Api):
    assert names(api.at("3.34"), "?name~=b") == "b"
    assert names(api.at("3.33"), "?name~=b") == ""


@pytest.mark.usefixtures("three")
def test_a_count_covers_all_pages_from_3_45_on(api: Api):
    page = api("GET", "/volumes?limit=1&with_count=true&name~=")
    assert page["count"] == 3
    assert len(page["volumes"]) == 1
    narrowed = api("GET", "/volumes/detail?with_count=1&size=1&limit=0")
    assert (narrowed["count"], narrowed["volumes"]) == (1, [])
    assert "count" not in api("GET", "/volumes?with_count=false")
    assert "count" not in api.at("3.44")("GET", "/volumes?with_count=true")


@pytest.mark.usefixtures("three")
def test_other_projects_are_listed_only_with_all_tenants(api: Api, node: Node):
    other = Api(node.assembly.app)
    assert other("GET", "/volumes")["volumes"] == []
    assert other("GET", "/volumes?all_tenants=0")["volumes"] == []
    query = f"/volumes/detail?project_id={api.project}"
    assert other("GET", query)["volumes"] == []
    assert len(other("GET", f"{query}&all_tenants=1")["volumes"]) == 3
    assert len(api("GET", query)["volumes"]) == 3
