# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of any length, wherever a client can put one: a sentence, never a crash."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calls import Api
from tests.stands.node import connector

_HUGE = (2**63, 2**64, -(2**63) - 1, 10**30, 10**4000)
_TEXTS = ("1" * 19, "9" * 19, "9" * 20, "1" * 5001, "-" + "1" * 5001, "1" * 5001 + ".5")
_BODIES = (
    "1" * 5001,
    "0" * 5000 + "1",
    "-" + "9" * 5001,
    "1e400",
    "-1e400",
    "1" * 400 + ".5",
    "NaN",
)
_NOBODY = str(uuid.uuid4())


def send(api: Api, method: str, path: str, body: bytes | None = None) -> int:
    """The status of the answer, which must be 4xx with a sentence."""
    answer = api.send(method, path, body)
    assert answer.status_code < 500, answer.text
    return int(answer.status_code)


@pytest.mark.parametrize("number", _HUGE, ids=lambda n: f"{len(str(n))} digits")
def test_an_integer_too_large_for_a_column_is_refused(api: Api, number: int) -> None:
    volume = api.volume()
    sent = connector("h", multipath=number, nested=[{"deep": number}])
    asked: dict[str, Any] = {"volume_uuid": volume["id"], "connector": sent}
    said = api.fault(400, "POST", "/attachments", {"attachment": asked})
    assert "number" in said
    row = api.attachment(volume["id"])
    path = f"/attachments/{row['id']}"
    api.fault(400, "PUT", path, {"attachment": {"connector": sent}})
    api("DELETE", path)
    assert api.shown(volume["id"])["status"] == "available"


def test_the_longest_stored_integers_are_returned() -> None:
    """What is let in is what the database and every answer can hold."""
    from lunshare.agent.api.requests import bodies

    stored = [2**63 - 1, -(2**63)]
    assert bodies.parse(str(stored).encode()) == stored


@pytest.mark.parametrize("digits", _BODIES, ids=lambda d: f"{d[:3]} {len(d)}")
def test_any_number_in_a_body_is_answered(api: Api, digits: str) -> None:
    volume = api.volume()["id"]
    stored = api.snapshot(volume)["id"]
    bodies = {
        "/volumes": '{"volume": {"size": %s}}',
        "/snapshots": '{"snapshot": {"volume_id": %s}}',
        "/scheduler-stats/explain": '{"volume": {"size": %s}}',
        f"/volumes/{volume}/action": '{"os-extend": {"new_size": %s}}',
        "/attachments": '{"attachment": {"volume_uuid": "%s"}}',
        "/types": '{"volume_type": {"name": "x", "extra_specs": {"a": %s}}}',
    }
    for path, body in bodies.items():
        assert send(api, "POST", path, (body % digits).encode()) == 400, path
        quoted = body.replace("%s", '"%s"').replace('""', '"') % digits
        if path != "/types":
            assert send(api, "POST", path, quoted.encode()) == 400, path
    api("DELETE", f"/snapshots/{stored}", status=202)


@pytest.mark.parametrize("text", _TEXTS, ids=lambda t: f"{len(t)}")
def test_any_number_in_a_query_is_answered(api: Api, text: str) -> None:
    for resource in ("volumes", "snapshots", "attachments", "messages"):
        for key in ("limit", "offset", "size", "marker", "volume_size", "with_count"):
            for where in ("", "/detail"):
                if resource == "messages" and where:
                    continue
                assert send(api, "GET", f"/{resource}{where}?{key}={text}") in {
                    200,
                    400,
                    404,
                }
    assert send(api, "GET", f"/volumes?metadata={{'a': {text}}}") in {200, 400}
    assert send(api, "GET", f"/volumes/{text}") == 404


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_deeply_nested_body_is_refused(api: Api, opening: str) -> None:
    for depth in (33, 1000, 15_000):
        assert send(api, "POST", "/volumes", (opening * depth).encode()) == 400
        closing = {"[": "]", '{"a":': "1" + "}"}[opening]
        nested = opening * depth + closing[0] + closing[-1] * (depth - (opening == "["))
        assert send(api, "POST", "/volumes", nested.encode()) == 400


def test_any_number_in_a_header_is_answered(api: Api) -> None:
    for text in ("3." + "1" * 5001, "1" * 5001 + ".1", "3." + "0" * 5001):
        answer = api.send(
            "GET", "/volumes", headers={"OpenStack-API-Version": f"volume {text}"}
        )
        assert 400 <= answer.status_code < 500, answer.text
