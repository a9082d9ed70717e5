# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between helper and client: errors by name, and two versions of lunshare."""

from __future__ import annotations

import inspect
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers import errors
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames, messages
from lunshare.drivers.protocol.messages import PROTOCOL

pytest_plugins = ["tests.unit.helper_fixtures"]

KINDS = sorted(messages._CLASSES.values(), key=lambda kind: kind.code)
#: What a daemon of protocol 1 sends, and what its helper answers to a later request.
OLD_REQUEST = {"verb": "run", "timeout": 5, "arguments": {"argv": ["echo", "x"]}}
OLD_ANSWER = {"error": "invalid-value", "fields": ["verb", "NoneType", "give a str"]}
SENTENCE = "install one version of lunshare, then systemctl restart lunshare-helper"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_error_names_its_fields(kind: type[errors.DriverError]) -> None:
    if kind is errors.DriverError:
        return
    arguments = list(inspect.signature(kind).parameters)
    assert arguments == list(kind.FIELDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_error_arrives_by_named_fields(kind: type[errors.DriverError]) -> None:
    arguments: list[Any] = list(range(len(kind.FIELDS))) or ["a sentence"]
    if kind is errors.CommandFailed:
        arguments = [("a", "b"), 5, "why"]
    error = kind(*arguments)
    answer = json.loads(json.dumps(messages.error_answer(error)))
    assert answer["fields"].keys() == set(kind.FIELDS or ("sentence",))
    arrived = messages.error_of(answer)
    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"error": "new", "fields": {"x": 1}}, "new: {'x': 1}"),
        ({"error": "new", "fields": {"sentence": "It is late."}}, "It is late."),
        ({"error": "disk-busy", "fields": {"x": 1}}, "disk-busy: {'x': 1}"),
    ],
)
def test_an_unknown_error_is_a_sentence(answer: dict[str, Any], sentence: str) -> None:
    error = messages.error_of(answer)
    assert type(error) is errors.DriverError
    assert str(error) == sentence


# two versions


@pytest.mark.parametrize(
    "request_",
    [
        OLD_REQUEST,
        {"protocol": 2, "call": "run", "timeout": 5, "arguments": {"argv": ["x"]}},
        messages.request("run", 5, {"argv": ["x"]}) | {"protocol": PROTOCOL + 1},
    ],
)
def test_helper_refuses_another_protocol_in_one_sentence(
    serve, path: Path, request_: dict[str, Any]
) -> None:
    serve()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        frames.send(connection, request_)
        answer = frames.receive(connection)
        frames.send(connection, messages.request("lio.check", 5, {"prefix": "p:"}))
        assert "value" in frames.receive(connection)
    theirs = request_.get("protocol", 1)
    # A daemon of protocol 1 made the error of these: DriverError(*fields).
    [sentence] = answer["fields"]
    assert sentence.startswith(
        f"the root helper speaks protocol {PROTOCOL} and its client (lunshared or"
        f" cinder-volume) protocol {theirs}:"
    )
    assert SENTENCE in sentence
    assert answer["error"] == "helper-version"
    assert answer["protocol"] == PROTOCOL


@pytest.mark.parametrize(
    ("answer", "theirs"),
    [
        (OLD_ANSWER, 1),
        ({"error": "helper-version", "fields": ["A sentence."], "protocol": 2}, 2),
        ({"error": "helper-busy", "fields": ["all its connections are used"]}, 1),
    ],
)
def test_daemon_reports_a_helper_of_another_protocol_in_one_sentence(
    path: Path, answer: dict[str, Any], theirs: int
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def reply() -> None:
            connection, _ = listener.accept()
            with connection:
                frames.receive(connection)
                frames.send(connection, answer)

        thread = threading.Thread(target=reply)
        thread.start()
        helper = Helper(str(path))
        with pytest.raises(errors.HelperVersion) as caught:
            helper.run("echo", "hello")
        helper.close()
        thread.join(10)
    assert str(caught.value).startswith(
        f"the root helper speaks protocol {theirs} and its client (lunshared or"
        f" cinder-volume) protocol {PROTOCOL}:"
    )
    assert SENTENCE in str(caught.value)


@pytest.mark.parametrize("given", [True, "2", 2.0, None, [2]])
def test_a_protocol_that_is_not_a_number_is_refused(given: object) -> None:
    assert messages.protocol_of({"protocol": given}) != PROTOCOL


def test_two_frames_received_at_once_are_both_read() -> None:
    """A progress frame and the answer may arrive together."""
    client, helper = socket.socketpair()
    with client, helper:
        client.settimeout(5)
        frames.send(helper, {"progress": 0})
        frames.send(helper, {"value": "done"})
        assert frames.receive(client) == {"progress": 0}
        assert frames.receive(client) == {"value": "done"}


@pytest.mark.parametrize(
    "sent",
    [
        b"[1]",
        b"5",
        b"null",
        b'"progress"',
        b"{}",
        b'{"values": 1}',
        b'{"error": 5, "fields": {}}',
        b'{"error": "no-space", "fields": ["x"], "protocol": 4}',
        b'{"error": "no-space", "fields": ["x"], "protocol": "q"}',
        b'{"error": "deadline-exceeded", "fields": {"what": 1, "seconds": "x"}}',
    ],
)
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, sent: bytes) -> None:
    """Without a value and an error it was a success, of a delete for example."""
    path = str(tmp_path / "helper.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                frames.receive(connection)
                connection.sendall(len(sent).to_bytes(4, "big") + sent)

        thread = threading.Thread(target=answer)
        thread.start()
        helper = Helper(path)
        with pytest.raises(errors.DriverError):
            helper.call("share.delete", timeout=5)
        thread.join(10)
        helper.close()
