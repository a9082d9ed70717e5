# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The values that cross layers: what the database holds, as frozen records.

Sizes of volumes are GiB here, as the API has them; drivers take bytes.
Times are UTC and carry no zone, as the API prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lunshare.agent.states import (
    AttachStatus,
    SnapshotStatus,
    VolumeStatus,
    volume_status,
)

# One type for the mode of an attachment, from the API to the driver.
from lunshare.drivers.values import Mode as Mode  # noqa: PLC0414


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who sends a request. Every service method that a handler calls gets it first.

    It decides the owner of what is created, and which user messages are visible
    (``is_admin``: those of all projects). ``request_id`` is in logs and answers.
    """

    user_id: str
    project_id: str
    is_admin: bool
    request_id: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """One host's (or one not yet known host's) claim on one volume.

    ``mode`` is None until it is resolved at connect. ``connection_info`` is
    what the host was told, without its credentials. ``leaving`` is the initiator
    whose place ``initiator`` took, until its access is known to be closed.
    ``answered`` says that whoever asked for it has had time to learn its id.
    ``status_reason`` is what went wrong, of an attachment in an error.
    """

    id: str
    volume_id: str
    status: AttachStatus
    mode: Mode | None = None
    instance_uuid: str | None = None
    attached_host: str | None = None
    mountpoint: str | None = None
    attach_time: datetime | None = None
    detach_time: datetime | None = None
    connector: Mapping[str, Any] | None = None
    connection_info: Mapping[str, Any] | None = None
    initiator: str | None = None
    auth_username: str | None = None
    auth_password: str | None = field(default=None, repr=False)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    leaving: str | None = None
    status_reason: str | None = None
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume with its attachments that are not gone.

    ``intent`` is what its status alone does not say of work under way, so that
    a restart can finish it: ``size`` (GiB) of an extend, ``snapshot_id`` of a
    revert, ``moment`` (GiB of the source) and ``kept`` (whether that moment is)
    of a clone that is not whole yet, ``reference`` of a disk that is taken over,
    ``backend`` that it moves to, with ``type_id`` and ``multiattach`` of a retype.
    ``leaving`` is a backend that still has a disk of it, which is to go.
    """

    id: str
    size: int
    own_status: VolumeStatus
    backend: str
    project_id: str
    user_id: str
    name: str | None = None
    description: str | None = None
    availability_zone: str = "nova"
    multiattach: bool = False
    bootable: bool = False
    volume_type_id: str | None = None
    volume_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    snapshot_id: str | None = None
    source_volid: str | None = None
    intent: Mapping[str, Any] | None = None
    leaving: str | None = None
    migration_status: str | None = None
    status_reason: str | None = None
    attachments: tuple[Attachment, ...] = ()

    @property
    def status(self) -> VolumeStatus:
        """What clients see; see lunshare.agent.states."""
        return volume_status(self.own_status, [a.status for a in self.attachments])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bytes that a volume had at one moment; ``size`` is the volume's then.

    ``status_reason`` is what went wrong with it last, as it is of a volume.
    """

    id: str
    volume_id: str
    size: int
    status: SnapshotStatus
    project_id: str
    user_id: str
    name: str | None = None
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    status_reason: str | None = None


@dataclass(frozen=True, slots=True)
class VolumeType:
    """A named set of wishes for a volume."""

    id: str
    name: str
    description: str | None = None
    is_public: bool = True
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    @property
    def multiattach(self) -> bool:
        """Only this exact spelling counts, as in Cinder."""
        return self.extra_specs.get("multiattach") == "<is> True"


@dataclass(frozen=True, slots=True)
class NewVolume:
    """A checked request to create a volume. ``volume_type`` is an id or a name.

    Without a size it is as large as its source, of which it has one at most.
    """

    size: int | None
    name: str | None = None
    description: str | None = None
    volume_type: str | None = None
    availability_zone: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    snapshot_id: str | None = None
    source_volid: str | None = None


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A checked request for a snapshot; ``in_use``: whatever hosts do meanwhile."""

    volume_id: str
    name: str | None = None
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class ManageRequest:
    """A checked request to make somebody's disk, ``reference``, a volume of ours.

    ``host`` is host@backend or host@backend#pool.
    """

    host: str
    reference: str
    name: str | None = None
    description: str | None = None
    volume_type: str | None = None
    availability_zone: str | None = None
    bootable: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignDisk:
    """A disk in a pool that is not ours: its owner's name, and GiB, rounded up.

    ``why_not`` says why it cannot become a volume, or is empty.
    """

    reference: str
    size: int
    why_not: str = ""

    @property
    def id(self) -> str:
        """What a list's marker names."""
        return self.reference


@dataclass(frozen=True, slots=True)
class HostConnector:
    """A checked connector: which host attaches, by which initiator name.

    ``mode`` is None where the host does not name one. ``sent`` is the connector as
    the client sent it. It is stored with the attachment.
    """

    initiator: str
    host: str
    mountpoint: str
    mode: Mode | None
    sent: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewAttachment:
    """A checked request for an attachment; with a connector it is opened at once."""

    volume_id: str
    instance_uuid: str | None = None
    mode: Mode | None = None
    connector: HostConnector | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of a list, in which order.

    ``sort`` holds (column, descending) pairs; ``filters`` column to value;
    ``project_id`` None means every project. ``marker`` is the id of the last
    row the client has.
    """

    project_id: str | None
    limit: int
    marker: str | None = None
    offset: int = 0
    sort: tuple[tuple[str, bool], ...] = (("created_at", True),)
    filters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """One backend as a scheduler sees it: host@backend#pool and what it can do.

    ``problem`` says why it is down, ``closed`` why it takes nothing new although
    it is not; both are empty when it is well.
    """

    name: str
    backend: str
    capabilities: Mapping[str, Any]
    problem: str = ""
    closed: str = ""
    enabled: bool = True
    zone: str = "nova"

    @property
    def up(self) -> bool:
        """Whether its last check found it working."""
        return not self.problem


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One line of os-services."""

    binary: str
    host: str
    zone: str
    enabled: bool
    up: bool
    updated_at: datetime
    disabled_reason: str | None = None


@dataclass(frozen=True, slots=True)
class HostAccess:
    """One host's access to one volume: what the rows ask for, what the target has.

    ``attachment_id`` is None where the target has an access that no attachment asks
    for. ``allowed`` is the mode that the target enforces, None where it lets the
    host in not at all. ``sessions`` is None where the target could not be asked.
    ``problem`` says in one sentence where the two disagree, or is empty.
    """

    volume_id: str
    volume_name: str | None
    backend: str
    initiator: str
    host: str | None = None
    attachment_id: str | None = None
    mode: str | None = None
    status: str | None = None
    allowed: str | None = None
    sessions: int | None = None
    addresses: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of ours on a backend that no row knows.

    ``kind`` is export, disk or snapshot; ``where`` is what an operator calls it.
    """

    kind: str
    id: str
    backend: str
    where: str

    def __str__(self) -> str:
        return f"{self.where} has no row"


@dataclass(frozen=True, slots=True)
class RecoverRequest:
    """A checked request to give an orphaned disk its row again."""

    volume_id: str
    name: str | None = None
    volume_type: str | None = None


@dataclass(frozen=True, slots=True)
class WipeState:
    """A deleted disk whose bytes are still being wiped: its bytes, and those left."""

    backend: str
    name: str
    size: int
    left: int

    @property
    def percent(self) -> int:
        """How much of it is wiped; 100 only when nothing is left."""
        return (self.size - self.left) * 100 // self.size if self.size else 0


@dataclass(frozen=True, slots=True)
class Message:
    """Why something failed, for whoever asked for it; gone after ``expires_at``."""

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


@dataclass(frozen=True, slots=True)
class Health:
    """Whether this node works, and one sentence for each thing that does not."""

    ready: bool
    problems: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
