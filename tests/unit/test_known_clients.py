# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A member cannot take the places of other known clients."""

from __future__ import annotations

import pytest

from lunshare.agent.http.known_clients import KnownClients
from lunshare.agent.request_scope import Credential

BASIC, TOKEN = "HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN"


def known_to(header: str, proof: str) -> KnownClients:
    """Anna is known by this header."""
    known = KnownClients()
    known.add({header: proof}, Credential("anna", header))
    return known


@pytest.mark.parametrize(("header", "other"), [(BASIC, TOKEN), (TOKEN, BASIC)])
def test_a_header_that_proves_nothing_makes_no_client(header: str, other: str) -> None:
    known = known_to(header, "of anna")
    for number in range(10_001):
        known.add({header: "of eve", other: str(number)}, Credential("eve", header))
    assert known.user({header: "of anna"}) == "anna"
    assert known.user({header: "of anna", other: "new"})
    assert known.user({header: "of eve"}) == "eve"
    assert known.user({other: "of anna"}) is None
    assert known.user({other: "10000"}) is None


@pytest.mark.parametrize("header", [BASIC, TOKEN])
def test_a_user_with_many_proofs_replaces_only_its_own(header: str) -> None:
    """Basic has many spellings, in blanks and in case; tokens can be had anew."""
    known = known_to(header, "of anna")
    for number in range(10_001):
        known.add({header: f"of eve {number}"}, Credential("eve", header))
    assert known.user({header: "of anna"})
    assert known.user({header: "of eve 10000"})
    assert known.user({header: "of eve 9950"})
    assert known.user({header: "of eve 0"}) is None


def test_who_needs_no_proof_is_one_client() -> None:
    known = KnownClients()
    assert known.user({}) is None
    known.add({TOKEN: "anna:one"}, Credential("anna", ""))
    assert known.user({})
    assert known.user({TOKEN: "eve:two"})


def test_a_client_that_comes_again_keeps_its_place() -> None:
    known = known_to(BASIC, "of anna")
    for number in range(300):
        known.add({BASIC: "of anna"}, Credential("anna", BASIC))
        known.add({BASIC: f"other {number}"}, Credential(f"user {number}", BASIC))
    assert known.user({BASIC: "of anna"})
    assert known.user({BASIC: "other 0"})
