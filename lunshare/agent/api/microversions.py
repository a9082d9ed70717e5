# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The microversion of a request, from its OpenStack-API-Version header.

https://docs.openstack.org/cinder/latest/contributor/api_microversion_dev.html
"""

from __future__ import annotations

from functools import lru_cache

from lunshare.agent.api.exchange import Version
from lunshare.agent.api.faults import Fault
from lunshare.agent.model.errors import Invalid

HEADER = "OpenStack-API-Version"
_SHORT = 64  # characters of a header that is remembered
MIN: Version = (3, 0)
MAX: Version = (3, 71)

MESSAGES: Version = (3, 3)
MESSAGE_PAGES: Version = (3, 5)
CLUSTERS: Version = (3, 7)
IMAGE_METADATA_FILTER: Version = (3, 4)
MANAGEABLE: Version = (3, 8)
SUMMARY: Version = (3, 12)
METADATA_ETAG: Version = (3, 15)
SNAPSHOT_METADATA_FILTER: Version = (3, 22)
DELETE_FORCE: Version = (3, 23)
CLEANUP: Version = (3, 24)
FAILOVER: Version = (3, 26)
ATTACHMENTS: Version = (3, 27)
POOL_FILTERS: Version = (3, 28)
LOG_LEVELS: Version = (3, 32)
RESOURCE_FILTERS: Version = (3, 33)
STRICT_FILTERS: Version = (3, 31)
LIKE_FILTERS: Version = (3, 34)
POOL_TYPE_FILTER: Version = (3, 35)
LIMITS_OF_PROJECT: Version = (3, 39)
SUMMARY_METADATA: Version = (3, 36)
REVERT: Version = (3, 40)
EXTEND_IN_USE: Version = (3, 42)
ATTACHMENT_COMPLETE: Version = (3, 44)
LIST_COUNT: Version = (3, 45)
TYPE_SPEC_FILTER: Version = (3, 52)
STRICT_BODIES: Version = (3, 53)
ATTACHMENT_MODE: Version = (3, 54)
TRANSFER_SNAPSHOTS: Version = (3, 55)
TRANSFER_HISTORY: Version = (3, 57)
TIME_FILTERS: Version = (3, 60)
DEFAULT_TYPES: Version = (3, 62)
SNAPSHOT_IN_USE: Version = (3, 66)


def text(version: Version) -> str:
    """Return the version as X.Y."""
    return f"{version[0]}.{version[1]}"


def negotiate(header: str | None) -> Version:
    """Return the version that the header names; 3.0 if it has none for volume.

    :raises Invalid: it is not of the form "volume X.Y" or "volume latest".
    :raises Fault: 406, it is out of range.
    """
    sent = header or ""
    return _remembered(sent) if len(sent) <= _SHORT else _negotiated(sent)


def _negotiated(header: str) -> Version:
    number = _of_volume(header)
    if number is None:
        return MIN
    if number == "latest":
        return MAX
    version = _parse(number)
    if not MIN <= version <= MAX:
        raise Fault(
            406,
            f"Version {number[:32]} is not supported:"
            f" ask for {text(MIN)} to {text(MAX)}.",
        )
    return version


_remembered = lru_cache(maxsize=256)(_negotiated)


def _of_volume(header: str) -> str | None:
    for item in header.split(","):
        service, _, number = item.strip().partition(" ")
        if service == "volume":
            return number.strip()
    return None


def _parse(number: str) -> Version:
    major, _, minor = number.partition(".")
    if all(p.isascii() and p.isdigit() and len(p) <= 9 for p in (major, minor)):
        return int(major), int(minor)
    raise Invalid(
        f"{HEADER} has a version that is not of the form X.Y: send"
        f' "volume {text(MIN)}" to "volume {text(MAX)}", or "volume latest".'
    )
