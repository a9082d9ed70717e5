# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the OpenAPI document says of identity: how a client proves who it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

#: A scheme for each auth_strategy that asks for a proof.
SCHEMES: Json = {
    "http_basic": {
        "type": "http",
        "scheme": "basic",
        "description": "a user of the node, with auth_strategy = http_basic",
    },
    "keystone": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Auth-Token",
        "description": "a token of Keystone, with auth_strategy = keystone",
    },
}
#: A request needs one of them.
ONE_OF: Sequence[Json] = [{name: []} for name in SCHEMES]

_HEADERS: Mapping[int, str] = {401: "WWW-Authenticate", 503: "Retry-After"}


def headers(status: int) -> dict[str, Json]:
    """Return the header that the answer of a failed proof has beside the usual ones."""
    name = _HEADERS.get(status)
    return {name: {"$ref": "#/components/headers/text"}} if name else {}
