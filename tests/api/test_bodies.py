# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a request body may hold: bytes in, plain values or one sentence out."""

import io
import json

import pytest

from lunshare.agent.api.faults import Fault
from lunshare.agent.api.requests import bodies
from lunshare.agent.model.errors import Invalid

NOT_JSON = {
    b"": "missing",
    b"{": "is not JSON",
    b"{'a': 1}": "is not JSON",
    b'{"a": 1} {': "is not JSON",
    b'{"a": "\xff\xfe"}': "UTF-8",
    b'\xef\xbb\xbf{"a": 1}': "is not JSON",
    b'{"a": 1, "a": 2}': "twice",
    b'{"a": {"b": 1, "b": 1}}': "twice",
    b'{"a": NaN}': "NaN",
    b'{"a": -Infinity}': "-Infinity",
    b'{"a": 1e999}': "too large",
    b'{"a": -1e999}': "too large",
    b'{"a": ' + b"9" * 5000 + b"}": "too long",
    b'{"a": "x\\u0000y"}': "NUL",
    b'{"\\u0000": 1}': "NUL",
    b'{"a": ["\\ud800"]}': "surrogate",
    b"[" * 40 + b"]" * 40: "nested",
    b"[" * 100_000: "nested",
    b'{"a":' * 5000: "nested",
}


@pytest.mark.parametrize("raw", NOT_JSON, ids=range(len(NOT_JSON)))
def test_a_body_that_cannot_be_stored_is_refused_with_the_reason(raw: bytes):
    with pytest.raises(Invalid, match=NOT_JSON[raw]):
        bodies.parse(raw)


def test_a_valid_body_is_parsed_unchanged():
    value = {"a": [1, -2.5, None, True, "é \U0001f600"], "b": {"c": {}}}
    assert bodies.parse(json.dumps(value).encode()) == value
    assert bodies.parse(json.dumps(value, ensure_ascii=False).encode()) == value


def test_nesting_is_allowed_up_to_the_limit():
    deepest = b"[" * 32 + b"1" + b"]" * 32
    assert json.dumps(bodies.parse(deepest)).encode() == deepest
    with pytest.raises(Invalid, match="at most 32"):
        bodies.parse(b"[" + deepest + b"]")


@pytest.mark.parametrize(
    "name", ["application/json", "Application/JSON; charset=utf-8"]
)
def test_json_is_accepted(name: str):
    bodies.check_type(name)


@pytest.mark.parametrize(
    "name", [None, "", "text/plain", "application/xml", "application/jsonx"]
)
def test_any_other_type_is_415(name: str | None):
    with pytest.raises(Fault) as caught:
        bodies.check_type(name)
    assert caught.value.status == 415


@pytest.mark.parametrize(("length", "raw"), [(11, b""), (None, b"x" * 11)])
def test_a_content_length_over_the_limit_is_413_without_reading(
    length: int | None, raw: bytes
):
    with pytest.raises(Fault, match="at most 10 bytes") as caught:
        bodies.read(io.BytesIO(raw), length, 10)
    assert caught.value.status == 413


def test_a_body_of_exactly_the_limit_is_read():
    assert bodies.read(io.BytesIO(b"x" * 10), 10, 10) == b"x" * 10
    assert bodies.read(io.BytesIO(b"x" * 10), None, 10) == b"x" * 10


def test_an_incomplete_body_is_400():
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("connection reset")

    with pytest.raises(Invalid, match="is incomplete"):
        bodies.read(Broken(), 5, 10)
