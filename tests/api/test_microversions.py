# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which version a header asks for."""

import tracemalloc

import pytest

from lunshare.agent.api import microversions
from lunshare.agent.api.faults import Fault
from lunshare.agent.model.errors import Invalid

ASKED = {
    None: (3, 0),
    "": (3, 0),
    "compute 2.99": (3, 0),
    "volume 3.0": (3, 0),
    "volume 3.27": (3, 27),
    "volume  3.71": (3, 71),
    "volume latest": (3, 71),
    "compute 2.1, volume 3.54": (3, 54),
    "volume 3.54,compute latest": (3, 54),
}


@pytest.mark.parametrize("header", ASKED)
def test_the_version_of_the_volume_service_counts(header: str | None):
    assert microversions.negotiate(header) == ASKED[header]


@pytest.mark.parametrize(
    "header",
    ["volume", "volume 3", "volume 3.x", "volume -3.1", "volume 3.1.1", "volume 3.²"],
)
def test_a_malformed_version_is_400(header: str):
    with pytest.raises(Invalid, match=r"volume 3\.0"):
        microversions.negotiate(header)


@pytest.mark.parametrize("header", ["volume 3.72", "volume 2.0", "volume 4.0"])
def test_a_version_out_of_range_is_406(header: str):
    with pytest.raises(Fault, match=r"3\.0 to 3\.71") as caught:
        microversions.negotiate(header)
    assert caught.value.status == 406


def test_long_headers_are_not_kept():
    tracemalloc.start()
    try:
        for number in range(100):
            microversions.negotiate(f"volume 3.1, {number:050000}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
