# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the HTTP layer is handed: one object for each noun."""

from __future__ import annotations

from dataclasses import dataclass

from agent.service.attachments import Attachments
from agent.service.extending import Extending
from agent.service.handing import Handing
from agent.service.hosts import Hosts
from agent.service.messages import Messages
from agent.service.moving import Moving
from agent.service.node import Node
from agent.service.orphans import Orphans
from agent.service.resetting import Resetting
from agent.service.reverting import Reverting
from agent.service.scheduler import Scheduler
from agent.service.snapshots import Snapshots
from agent.service.types import Types
from agent.service.volumes import Volumes
from agent.service.wiping import Wiping


@dataclass(frozen=True, slots=True)
class Services:
    """The nouns of the API."""

    volumes: Volumes
    attachments: Attachments
    types: Types
    node: Node
    snapshots: Snapshots
    extending: Extending
    reverting: Reverting
    wiping: Wiping
    handing: Handing
    moving: Moving
    scheduler: Scheduler
    messages: Messages
    hosts: Hosts
    orphans: Orphans
    resetting: Resetting
