# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a project may have: every quota, in one table.

A limit of -1 is no limit. The names of resources and options are Cinder's.
"""

from __future__ import annotations

from dataclasses import dataclass

#: No limit.
UNLIMITED = -1

#: In place of the id of a volume type: all types together.
ALL_TYPES = ""


@dataclass(frozen=True, slots=True)
class QuotaResource:
    """One quota. ``per_type``: there is also one for each volume type.

    ``default`` is the limit without the option, ``what`` the start of its help.
    """

    name: str
    option: str
    default: int
    what: str
    per_type: bool = False


VOLUMES = "volumes"
GIGABYTES = "gigabytes"
SNAPSHOTS = "snapshots"
VOLUME_SIZE = "per_volume_gigabytes"

RESOURCES: tuple[QuotaResource, ...] = (
    QuotaResource(VOLUMES, "quota_volumes", 10, "Volumes of a project", per_type=True),
    QuotaResource(
        SNAPSHOTS, "quota_snapshots", 10, "Snapshots of a project", per_type=True
    ),
    QuotaResource(
        GIGABYTES,
        "quota_gigabytes",
        1000,
        "GiB of a project, of its volumes and snapshots together",
        per_type=True,
    ),
    QuotaResource(VOLUME_SIZE, "per_volume_size_limit", -1, "GiB of one volume"),
    QuotaResource(
        "backups", "quota_backups", 10, "Backups of a project (shown, not used)"
    ),
    QuotaResource(
        "backup_gigabytes",
        "quota_backup_gigabytes",
        1000,
        "GiB of a project's backups (shown, not used)",
    ),
    QuotaResource(
        "groups", "quota_groups", 10, "Groups of a project (shown, not used)"
    ),
)

PER_TYPE = tuple(row.name for row in RESOURCES if row.per_type)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a project has of one volume type, or of all of them."""

    volumes: int = 0
    gigabytes: int = 0
    snapshots: int = 0

    def amount(self, resource: str) -> int:
        """Return how much is used of a resource; 0 of one that is not counted."""
        return int(getattr(self, resource, 0))

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.volumes + other.volumes,
            self.gigabytes + other.gigabytes,
            self.snapshots + other.snapshots,
        )


@dataclass(frozen=True, slots=True)
class Quota:
    """One line of a quota set: its key, such as ``volumes`` or ``volumes_gold``."""

    key: str
    limit: int
    in_use: int = 0
