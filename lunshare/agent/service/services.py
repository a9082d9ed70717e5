# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""All services, as the HTTP layer sees them."""

from __future__ import annotations

from lunshare.agent.service.attachments.batches import Batches
from lunshare.agent.service.attachments.fencing import Fences
from lunshare.agent.service.attachments.handover import Handovers
from lunshare.agent.service.attachments.leases import Leases
from lunshare.agent.service.attachments.legacy import LegacyActions
from lunshare.agent.service.attachments.mode_change import ModeChanges
from lunshare.agent.service.attachments.service import Attachments
from lunshare.agent.service.hosts import Hosts
from lunshare.agent.service.jobs.wiper import Wiper
from lunshare.agent.service.log_levels import LogLevels
from lunshare.agent.service.messages import Messages
from lunshare.agent.service.metrics.recorded import Metrics, Recorded
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans.orphans import Orphans
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.scheduling.scheduler import Scheduler
from lunshare.agent.service.snapshots.managed import ManagedSnapshots
from lunshare.agent.service.snapshots.snapshot_status import SnapshotResetter
from lunshare.agent.service.snapshots.snapshots import Snapshots
from lunshare.agent.service.transfers import Transfers
from lunshare.agent.service.types.qos import Qos
from lunshare.agent.service.types.type_access import TypeAccess
from lunshare.agent.service.types.type_encryption import TypeEncryption
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.verifier import Verifier
from lunshare.agent.service.volumes.extend import VolumeExtender
from lunshare.agent.service.volumes.manage import ManagedDisks
from lunshare.agent.service.volumes.metadata import VolumeMetadata
from lunshare.agent.service.volumes.migrate import VolumeMigrator
from lunshare.agent.service.volumes.reset_status import StatusResetter
from lunshare.agent.service.volumes.revert import VolumeReverter
from lunshare.agent.service.volumes.service import Volumes


class Services:
    """One for each resource or group of operations; ``Parts`` has them."""

    volumes: Volumes
    attachments: Attachments
    types: Types
    type_access: TypeAccess
    type_encryption: TypeEncryption
    quotas: Quotas
    qos: Qos
    log_levels: LogLevels
    node: Node
    snapshots: Snapshots
    extender: VolumeExtender
    reverter: VolumeReverter
    wiper: Wiper
    managed_disks: ManagedDisks
    managed_snapshots: ManagedSnapshots
    migrator: VolumeMigrator
    scheduler: Scheduler
    messages: Messages
    hosts: Hosts
    verifier: Verifier
    orphans: Orphans
    status_resetter: StatusResetter
    snapshot_resetter: SnapshotResetter
    metadata: VolumeMetadata
    legacy: LegacyActions
    batches: Batches
    mode_changes: ModeChanges
    handovers: Handovers
    fences: Fences
    leases: Leases
    transfers: Transfers
    recorded: Recorded
    metrics: Metrics
