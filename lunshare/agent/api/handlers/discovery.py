# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Versions of the API. No token is needed."""

from __future__ import annotations

from importlib import resources
from typing import Any

import orjson

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import bodies


def choices(call: Call) -> Answer:
    """GET /: list the versions of the API"""
    return Answer(300, _document(call))


def version(call: Call) -> Answer:
    """GET /v3: show version 3 of the API"""
    return Answer(200, _document(call))


def _document(call: Call) -> dict[str, Any]:
    media = f"{bodies.MEDIA_TYPE};version=3"
    return {
        "versions": [
            {
                "id": "v3.0",
                "status": "CURRENT",
                "version": microversions.text(microversions.MAX),
                "min_version": microversions.text(microversions.MIN),
                # When 3.71 was published; clients show it and nothing else.
                "updated": "2023-08-31T00:00:00Z",
                "links": [
                    {
                        "rel": "describedby",
                        "type": "text/html",
                        "href": "https://docs.openstack.org/",
                    },
                    {"rel": "self", "href": f"{call.root}/v3/"},
                ],
                "media-types": [{"base": "application/json", "type": media}],
            }
        ]
    }


def document(call: Call) -> Answer:
    """GET /openapi.json: describe every route, body and answer (OpenAPI 3.1)"""
    file = resources.files("lunshare.agent.api").joinpath("openapi.json")
    return Answer(200, orjson.Fragment(file.read_bytes()))
