# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A list's query: what page, in which order, narrowed how."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from lunshare.agent.api.requests import paging, query
from lunshare.agent.model.errors import Invalid


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", 0),
        ("7", 7),
        ("1000", 1000),
        ("5000", 1000),
        ("9" * 30, 1000),
        ("9" * 5000, 1000),
        ("0" * 30 + "7", 7),
    ],
)
def test_a_limit_above_the_maximum_is_reduced(text: str, limit: int):
    assert paging.limit({"limit": text}, 1000) == limit


def test_the_default_limit_is_the_maximum():
    assert paging.limit({}, 1000) == 1000


@pytest.mark.parametrize("text", ["-1", "1.5", "", "word", "٣", " 1", "+1"])
def test_a_limit_that_is_not_a_number_is_refused(text: str):
    with pytest.raises(Invalid, match="limit must be a whole number"):
        paging.limit({"limit": text}, 1000)


@pytest.mark.parametrize("text", ["-1", str(2**31), "9" * 30])
def test_an_offset_out_of_range_is_refused(text: str):
    with pytest.raises(Invalid, match="offset must be"):
        query.number({"offset": text}, "offset", 0, 2**31 - 1)


SORTS: dict[str, tuple[tuple[str, bool], ...]] = {
    "name": (("name", True),),
    "name:asc": (("name", False),),
    "name:asc,size:desc,id": (("name", False), ("size", True), ("id", True)),
}


@pytest.mark.parametrize("text", SORTS)
def test_sort_names_keys_and_directions(text: str):
    assert paging.sort({"sort": text}) == SORTS[text]


def test_the_default_order_is_newest_first():
    assert paging.sort({}) == (("created_at", True),)
    assert paging.sort({"sort_key": "size"}) == (("size", True),)
    assert paging.sort({"sort_dir": "asc"}) == (("created_at", False),)


@pytest.mark.parametrize(
    "asked",
    [
        {"sort": ""},
        {"sort": "name:up"},
        {"sort": "name:"},
        {"sort": ":asc"},
        {"sort": "name,name"},
        {"sort": ",".join(["size"] * 5000)},
        {"sort": "name", "sort_key": "name"},
        {"sort": "name", "sort_dir": "asc"},
        {"sort_key": "name", "sort_dir": "sideways"},
    ],
)
def test_an_invalid_order_is_refused(asked: dict[str, str]):
    with pytest.raises(Invalid, match="sort"):
        paging.sort(asked)


@pytest.mark.parametrize("text", ["1", "True", "yes", "on", "t", "Y"])
def test_every_spelling_of_true_is_accepted(text: str):
    assert query.boolean("force", text) is True


@pytest.mark.parametrize("text", ["0", "False", "no", "off", "f", "N"])
def test_every_spelling_of_false_is_accepted(text: str):
    assert query.boolean("force", text) is False


@pytest.mark.parametrize("text", ["", "2", "maybe"])
def test_another_value_of_a_boolean_is_refused_by_name(text: str):
    with pytest.raises(Invalid, match="force must be true or false"):
        query.boolean("force", text)


NEW, OLD = (3, 71), (3, 0)
MOMENT = datetime(2026, 1, 31, 12)

FILTERS: list[tuple[str, str, tuple[int, int], Any]] = [
    ("name", "x", NEW, "x"),
    ("name~", "x", NEW, "x"),
    ("size", "12", NEW, 12),
    ("size", "big", NEW, query.NOTHING),
    ("size", "9" * 30, NEW, query.NOTHING),
    ("size~", "1", NEW, query.NOTHING),
    ("bootable", "true", NEW, True),
    ("multiattach", "0", NEW, False),
    ("multiattach", "maybe", NEW, query.NOTHING),
    ("metadata", "{'a': 'b'}", NEW, {"a": "b"}),
    ("created_at", "gt:2026-01-31T12:00:00", NEW, (("gt", MOMENT),)),
    ("updated_at", "lte:2026-01-31T13:00:00+01:00", NEW, (("lte", MOMENT),)),
    (
        "created_at",
        "gte:2026-01-31T12:00:00, lt:2026-02-28T12:00:00",
        NEW,
        (("gte", MOMENT), ("lt", datetime(2026, 2, 28, 12))),
    ),
    ("created_at", "2026-01-31T12:00:00", OLD, MOMENT),
    ("created_at", "gt:2026-01-31T12:00:00", OLD, query.NOTHING),
]


@pytest.mark.parametrize(("key", "text", "version", "value"), FILTERS)
def test_a_filter_has_the_value_that_rows_have(
    key: str, text: str, version: tuple[int, int], value: Any
):
    assert query.filter_value(key, text, version) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("created_at", "2026-01-31T12:00:00"),
        ("created_at", "near:2026-01-31T12:00:00"),
        ("updated_at", "gt:yesterday"),
        ("updated_at", "gt:2026-01-31T12:00:00,"),
        ("updated_at", ",".join(["gt:2026-01-31T12:00:00"] * 2000)),
        ("updated_at", "gt:2026-01-31T12:00:00,2026-01-31T12:00:00"),
        ("updated_at", "gt:0001-01-01T00:00:00+10:00"),
        ("metadata", "a=b"),
        ("metadata", "{'a': 1}"),
        ("metadata", "{'a': 'b'" + " " * 2000 + "}"),
        ("metadata", r"{'a': '\ud800'}"),
        ("metadata", r"{'\udfff': 'b'}"),
        ("metadata", r"{'a': '\0'}"),
        ("metadata", "(" * 1000),
        ("metadata", "__import__('os')"),
    ],
)
def test_a_malformed_filter_is_refused_by_name(key: str, text: str):
    with pytest.raises(Invalid, match=key):
        query.filter_value(key, text, NEW)


def test_page_parameters_are_not_filters():
    words = dict.fromkeys(
        (
            "limit",
            "marker",
            "offset",
            "sort",
            "sort_key",
            "sort_dir",
            "with_count",
            "all_tenants",
            "project_id",
        ),
        "1",
    )
    assert paging.filters({**words, "status": "available"}, NEW) == {
        "status": "available"
    }


def test_a_contains_filter_matches_nothing_before_its_version():
    assert query.NOTHING in paging.filters({"name~": "x"}, (3, 33)).values()
    assert query.NOTHING not in paging.filters({"name~": "x"}, (3, 34)).values()


def test_a_hostile_query_is_refused_quickly():
    start = time.process_time()
    for text in ("(" * 1000, "[" * 1000, "-" * 1000, "{'a':" * 200):
        with pytest.raises(Invalid):
            query.mapping("metadata", text)
    assert time.process_time() - start < 1
