# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever arrives, the answer is a sentence and never a crash."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.agent.api.routes import ROUTES
from tests.api.calls import Api

WRITES = [
    (route.method, route.path.removeprefix("/v3").replace("{id}", "x"))
    for route in ROUTES
    if route.method in ("POST", "PUT")
]
RAW = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"volume"',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"volume": {"size": 1, "size": 2}}',
    b'{"volume": {"size": NaN}}',
    b'{"volume": {"size": 1, "name": "a\\u0000b"}}',
    b'{"volume": {"size": 1, "name": "\\udc00"}}',
    b'{"volume": {"size": ' + b"9" * 5000 + b"}}",
]


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_a_body_without_the_form_of_its_route_is_400(
    api: Api, method: str, path: str, raw: bytes
):
    api.fault(400, method, path, raw)


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_another_content_type_is_415(api: Api, method: str, path: str):
    headers = {"Content-Type": "text/plain"}
    sentence = api.fault(415, method, path, {}, headers=headers)
    assert sentence == "Content-Type must be application/json."


def test_the_media_type_that_the_versions_name_is_accepted(api: Api):
    (version,) = api.client.simulate_get("/v3").json["versions"]
    (media,) = version["media-types"]
    asked = {"volume": {"size": 1}}
    for kind in (media["type"], media["type"].partition(";")[0]):
        api("POST", "/volumes", asked, 202, headers={"Content-Type": kind})


def test_a_body_without_a_content_type_is_415(api: Api):
    asked = {"volume": {"size": 1}}
    said = api.fault(415, "POST", "/volumes", asked, headers={"Content-Type": None})
    assert said == "Content-Type must be application/json."


def test_a_body_over_the_limit_is_413(api: Api):
    body = b'{"volume": {"size": 1, "name": "' + b"x" * 2_000_000 + b'"}}'
    sentence = api.fault(413, "POST", "/volumes", body)
    assert "bytes" in sentence
    assert api("GET", "/volumes")["volumes"] == []


IDS = [
    "%00",
    "x%00y",
    "%F0%28%8C%28",
    "..",
    "%2e%2e%2fetc",
    "x" * 4000,
    "'--",
    "%C3%A9",
]


@pytest.mark.parametrize("ident", IDS, ids=range(len(IDS)))
def test_any_bytes_as_an_id_are_400_or_404(api: Api, ident: str):
    for resource in ("volumes", "attachments", "types"):
        answer = api.send("GET", f"/{resource}/{ident}")
        assert answer.status_code in (400, 404), answer.text
        (fault,) = answer.json.values()
        assert len(fault["message"]) <= 400


HEADERS: list[dict[str, str]] = [
    {"X-Auth-Token": "u" * 300 + ":p"},
    {"OpenStack-API-Version": "volume " + "9" * 5000},
    {"OpenStack-API-Version": "volume 3.\xe9"},
]


@pytest.mark.parametrize("headers", HEADERS, ids=range(len(HEADERS)))
def test_a_header_of_any_form_gets_an_answer(api: Api, headers: dict[str, str]):
    answer = api.send("POST", "/volumes", {"volume": {"size": 1}}, headers=headers)
    assert answer.status_code in (400, 406)
    assert len(answer.text) < 600


def test_answer_headers_contain_nothing_of_the_request(api: Api):
    asked = {"volume": {"size": 1, "name": "a\r\nSet-Cookie: x=1"}}
    answer = api.send("POST", "/volumes", asked)
    assert answer.status_code == 202
    headers = {key.lower(): value for key, value in answer.headers.items()}
    assert set(headers) == {
        "content-length",
        "content-type",
        "vary",
        "openstack-api-version",
        "x-openstack-request-id",
        "x-compute-request-id",
    }
    assert "Cookie" not in str(headers)


QUERIES = ["%FF=1", "=", "&&&", "a" * 5000, "limit=1&limit=word", "name=" + "%25" * 999]


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_query_of_any_bytes_gets_an_answer(api: Api, query: str):
    answer: Any = api.send("GET", f"/volumes?{query}")
    assert answer.status_code in (200, 400)
