# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How an error becomes HTTP."""

from __future__ import annotations

import logging

import pytest

from lunshare.agent.api import faults
from lunshare.agent.model import errors

TABLE: list[tuple[Exception, int, str, dict[str, str]]] = [
    (errors.Invalid("no"), 400, "badRequest", {}),
    (errors.NotFound("volume", "x"), 404, "itemNotFound", {}),
    (errors.Conflict("no"), 409, "conflictingRequest", {}),
    (errors.Busy("no"), 409, "conflictingRequest", {"Retry-After": "1"}),
    (errors.Exhausted("full"), 413, "overLimit", {"Retry-After": "0"}),
    (errors.BackendFailed("no"), 500, "computeFault", {}),
    (errors.BackendUnavailable("no"), 503, "serviceUnavailable", {"Retry-After": "5"}),
    (faults.Fault(406, "no"), 406, "computeFault", {}),
    (faults.Fault(415, "no"), 415, "badMediaType", {}),
    (faults.Fault(405, "no", {"Allow": "GET"}), 405, "badMethod", {"Allow": "GET"}),
]


@pytest.mark.parametrize(
    ("error", "status", "key", "headers"), TABLE, ids=[str(row[1:3]) for row in TABLE]
)
def test_each_family_has_its_status_and_key(
    error: Exception, status: int, key: str, headers: dict[str, str]
):
    answer = faults.answer(error, "req-1")
    assert (answer.status, answer.headers) == (status, headers)
    assert answer.body[key]["code"] == status
    assert answer.body[key]["message"]


def test_an_over_limit_answer_has_retry_after_in_header_and_body():
    body = faults.answer(errors.Exhausted("full"), "req-1").body["overLimit"]
    assert body == {"code": 413, "message": "full", "retryAfter": "0"}


def test_a_long_error_sentence_is_shortened():
    body = faults.answer(errors.NotFound("volume", "x" * 9000), "req-1").body
    message = body["itemNotFound"]["message"]
    assert len(message) == 400
    assert message.endswith("...")


@pytest.mark.parametrize(
    "error", [RuntimeError("s3cret"), errors.StartupError("s3cret"), KeyError("s3cret")]
)
def test_an_unexpected_error_is_logged_and_answered_in_one_sentence(
    error: Exception, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.ERROR):
        answer = faults.answer(error, "req-7")
    assert answer.status == 500
    assert "s3cret" not in str(answer.body)
    assert "req-7" in answer.body["computeFault"]["message"]
    assert "s3cret" in caplog.text
    assert "req-7" in caplog.text


def test_a_storage_failure_is_answered_and_logged(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR):
        answer = faults.answer(errors.BackendFailed("pool lost"), "req-7")
    assert answer.body["computeFault"]["message"] == "pool lost"
    assert "[req-7] FAILED backend-failed: pool lost" in caplog.text


def test_a_client_is_not_told_where_the_database_is(caplog: pytest.LogCaptureFixture):
    error = errors.DatabaseFailed("the file /var/x cannot be used")
    with caplog.at_level(logging.ERROR):
        answer = faults.answer(error, "req-7")
    assert answer.status == 503
    assert "/var" not in str(answer.body)
    assert "req-7" in answer.body["serviceUnavailable"]["message"]
    assert "[req-7] FAILED database-failed: the file /var/x" in caplog.text
