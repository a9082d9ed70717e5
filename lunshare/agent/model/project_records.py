# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a project has beside its volumes: transfers, user messages, the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Transfer:
    """An offer of a volume to the project that knows its key, which is hashed here."""

    id: str
    volume_id: str
    name: str | None
    salt: str = field(repr=False)
    key_hash: str = field(repr=False)
    no_snapshots: bool
    source_project_id: str
    created_at: datetime

    @property
    def project_id(self) -> str:
        """The project that has it."""
        return self.source_project_id


@dataclass(frozen=True, slots=True)
class VolumeSummary:
    """How many volumes there are, their GiB, and the values of each metadata key."""

    count: int
    size: int
    metadata: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Message:
    """Why an operation failed, for its project; deleted after ``expires_at``."""

    id: str
    project_id: str
    event_id: str
    user_message: str
    message_level: str
    resource_type: str | None
    resource_uuid: str | None
    request_id: str
    created_at: datetime
    expires_at: datetime
