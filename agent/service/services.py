# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the HTTP layer is handed: one object for each noun."""

from __future__ import annotations

from dataclasses import dataclass

from lunshare.agent.service.attachments import Attachments
from lunshare.agent.service.extending import Extending
from lunshare.agent.service.handing import Handing
from lunshare.agent.service.hosts import Hosts
from lunshare.agent.service.messages import Messages
from lunshare.agent.service.moving import Moving
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans import Orphans
from lunshare.agent.service.resetting import Resetting
from lunshare.agent.service.reverting import Reverting
from lunshare.agent.service.scheduler import Scheduler
from lunshare.agent.service.snapshots import Snapshots
from lunshare.agent.service.types import Types
from lunshare.agent.service.volumes import Volumes
from lunshare.agent.service.wiping import Wiping


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
