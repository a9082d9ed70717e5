# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from lunshare.agent.http import answer

_DATE = re.compile(rb"\r\nDate: [^\r]* GMT")


def answered(
    status: str,
    headers: list[tuple[str, str]],
    parts: Iterable[bytes] = (),
    is_head: bool = False,
    connection: str = "",
) -> bytes:
    """The answer of an application, without its date."""

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response(status, headers)
        return parts

    data = answer.call(app, {}).data(is_head, connection)
    shown, dates = _DATE.subn(b"", data)
    assert dates == 1
    return shown


def test_an_answer_has_its_headers_and_its_parts() -> None:
    headers = [("Content-Length", "4"), ("X-Name", "gr\xf6\xdfe")]
    assert answered("200 OK", headers, [b"ab", b"", b"cd"]) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Name: gr\xf6\xdfe\r\n\r\nabcd"
    )


def test_a_length_is_added_where_the_application_gives_none() -> None:
    assert answered("200 OK", [], [b"ab"]) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"
    )
    assert answered("204 No Content", []) == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_an_answer_that_never_has_a_body_is_sent_without_one(status: str) -> None:
    """The client would take it for the begin of the next answer (RFC 9112, 6.3)."""
    assert answered(status, [], [b"ab"]) == f"HTTP/1.1 {status}\r\n\r\n".encode()


def test_an_answer_to_head_has_no_body_and_the_length_of_it() -> None:
    headers = [("Content-Length", "2")]
    assert answered("200 OK", headers, [b"ab"], is_head=True) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    )


def test_an_answer_says_how_the_connection_goes_on() -> None:
    data = answered("204 No Content", [], connection="close")
    assert data == b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "bad", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b", "\u2028"]
)
@pytest.mark.parametrize("where", ["name", "value", "status"])
def test_a_header_cannot_contain_another_one(
    bad: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    status = f"200 {bad}" if where == "status" else "200 OK"
    header = (bad, "x") if where == "name" else ("x", bad)
    data = answered(status, [header] if where != "status" else [], [b"body"])
    assert data == b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
    assert "request failed unexpectedly" in caplog.text


def test_an_application_that_fails_is_500(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterable[bytes]:
        yield b"begun"
        raise OSError("the disk")

    assert answered("200 OK", [("Content-Length", "9")], failing()).startswith(
        b"HTTP/1.1 500 "
    )
    assert "the disk" in caplog.text


def test_what_the_application_returns_is_closed() -> None:
    class Parts(list[bytes]):
        closed = False

        def close(self) -> None:
            self.closed = True

    parts = Parts([b"ab"])
    answered("200 OK", [], parts)
    assert parts.closed
