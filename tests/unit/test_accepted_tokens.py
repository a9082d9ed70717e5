# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A token that was accepted before is accepted only where the token alone decides."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest

from lunshare.agent.api.access import accepted_tokens
from lunshare.agent.api.access.accepted_tokens import IDENTITY_HEADERS, AcceptedTokens
from tests.stands.waiting import until

TOKEN = {"HTTP_X_AUTH_TOKEN": "secret"}
READER = {
    "HTTP_X_ROLES": "reader",
    "HTTP_X_USER_ID": "anna",
    "HTTP_OPENSTACK_SYSTEM_SCOPE": None,
}


def answer(seconds: float = 60, **more: Any) -> dict[str, Any]:
    """What Keystone says about a token that is valid for so many seconds."""
    end = datetime.now(UTC) + timedelta(seconds=seconds)
    return {"token": {"expires_at": end.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), **more}}


def tokens(
    seconds: float = 60, until: float = 60, **more: Any
) -> tuple[AcceptedTokens, dict[str, Any]]:
    """Accepted tokens with one that was accepted, and what Keystone said of it."""
    known, said = AcceptedTokens(), answer(seconds, **more)
    environ = {**TOKEN, **READER, "keystone.token_info": said}
    known.remember(environ, time.monotonic() + until)
    return known, said


def test_known_token_gets_its_identity_again():
    known, said = tokens()
    environ: dict[str, Any] = {**TOKEN, "PATH_INFO": "/v3/volumes"}
    assert known.enter(environ)
    path = {"PATH_INFO": "/v3/volumes"}
    assert environ == {**TOKEN, **READER, **path, "keystone.token_info": said}


# webob 1.8 imports the cgi module, which Python 3.13 does not have.
@pytest.mark.filterwarnings("ignore:'cgi' is deprecated:DeprecationWarning")
def test_identity_in_headers_of_the_client_is_removed():
    requests: Any = import_module("keystonemiddleware.auth_token._request")
    names = {
        "HTTP_" + name.upper().replace("-", "_")
        for name in requests._AuthTokenRequest({})._all_auth_headers()
    }
    assert "HTTP_X_SERVICE_ROLES" in names
    known, said = tokens()
    spoofed = dict.fromkeys(names, "admin") | {"HTTP_OPENSTACK_SYSTEM_SCOPE": "all"}
    assert all(name.startswith(IDENTITY_HEADERS) for name in spoofed)
    environ = {**spoofed, **TOKEN}
    assert known.enter(environ)
    assert environ == {**TOKEN, **READER, "keystone.token_info": said}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HTTP_X_AUTH_TOKEN": "other"},
        {"HTTP_X_AUTH_TOKEN": ""},
        {"HTTP_X_STORAGE_TOKEN": "secret"},
        {**TOKEN, "HTTP_X_SERVICE_TOKEN": ""},
        {**TOKEN, "HTTP_X_SERVICE_TOKEN": "secret"},
    ],
)
def test_other_tokens_and_service_tokens_are_not_known(environ):
    known, _ = tokens()
    before = dict(environ)
    assert not known.enter(environ)
    assert environ == before


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": -1},
        {"until": -1},
        {"application_credential": {"id": "a", "access_rules": []}},
        {"bind": {"kerberos": "anna@EXAMPLE.COM"}},
    ],
)
def test_limited_token_is_left_to_keystonemiddleware(limits):
    known, _ = tokens(**limits)
    assert not known.enter({**TOKEN})


def test_token_beside_a_service_token_is_not_remembered():
    known = AcceptedTokens()
    environ = {**TOKEN, **READER, "HTTP_X_SERVICE_TOKEN": "nova"}
    known.remember({**environ, "keystone.token_info": answer()}, time.monotonic() + 60)
    assert not known.enter({**TOKEN})


@pytest.mark.parametrize("end", ["token", "answer"])
def test_an_identity_is_forgotten_at_the_end_of_its_token_or_its_answer(end: str):
    """Also in memory: nothing of a token stays that could not be used any more."""
    known, _ = tokens(**({"until": 0.05} if end == "answer" else {"seconds": 0.05}))
    until(lambda: not known.enter({**TOKEN}))
    if end == "answer":
        assert len(known._identities) == 0


def test_the_memory_for_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accepted_tokens, "_TOKENS_MAX", 3)
    known = AcceptedTokens()
    for number in range(5):
        environ = {"HTTP_X_AUTH_TOKEN": str(number), "keystone.token_info": answer()}
        known.remember(environ, time.monotonic() + 60)
    entered = [
        number for number in range(5) if known.enter({"HTTP_X_AUTH_TOKEN": str(number)})
    ]
    assert entered == [2, 3, 4]
