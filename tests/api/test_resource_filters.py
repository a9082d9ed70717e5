# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which filters a caller may use."""

from __future__ import annotations

import pytest

from lunshare.agent.api.requests import resource_filters
from lunshare.agent.model.errors import Invalid
from tests.api.calls import Api

ASKED = {"name": "x", "host": "y", "name~": "z"}


def test_another_filter_is_refused_from_3_31_on():
    with pytest.raises(Invalid, match="host: filter by name, status"):
        resource_filters.allowed("volume", ASKED, False, (3, 31))
    dropped = resource_filters.allowed("volume", ASKED, False, (3, 30))
    assert dropped == {"name": "x"}
    assert resource_filters.allowed("volume", ASKED, True, (3, 31)) == ASKED


def test_volumes_are_found_by_whether_they_count(api: Api):
    made = api.volume()
    (found,) = api("GET", "/volumes?consumes_quota=true")["volumes"]
    assert found["id"] == made["id"]
    assert api("GET", "/volumes?consumes_quota=false")["volumes"] == []
    assert api("GET", "/snapshots?consumes_quota=false")["snapshots"] == []
