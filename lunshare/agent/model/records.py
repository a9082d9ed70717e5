# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The values that cross layers, as frozen records.

Sizes of volumes are GiB, as in the API; those of drivers are bytes. Times are UTC
without a zone, as the API prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from lunshare.agent.model.errors import existing
from lunshare.agent.model.states import (
    AttachStatus,
    FenceKind,
    SnapshotStatus,
    VolumeStatus,
    volume_status,
)

# One type for the mode of an attachment, from the API to the driver.
from lunshare.drivers.values import Manageable as Manageable  # noqa: PLC0414
from lunshare.drivers.values import ManageableSnapshot as ManageableSnapshot  # noqa: PLC0414
from lunshare.drivers.values import Mode as Mode  # noqa: PLC0414
from lunshare.drivers.values import PortalGuard


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who sends a request. Every service method that a handler calls gets it first.

    It decides the owner of what is created, and what is visible (``is_admin``: that
    of all projects). ``roles`` are those of the user in this project, in lower case.
    ``service_roles`` are those of the service that sends the request for its user,
    and only if its token is valid. ``system_scope`` is "all" for a token that belongs
    to no project. ``request_id`` is in logs and answers.
    """

    user_id: str
    project_id: str
    is_admin: bool
    request_id: str
    roles: tuple[str, ...] = ()
    service_roles: tuple[str, ...] = ()
    system_scope: str | None = None

    @property
    def is_service(self) -> bool:
        """Whether a service such as Nova sends the request."""
        return "service" in self.roles or "service" in self.service_roles

    @property
    def only_project(self) -> str | None:
        """The project whose resources exist for this client; None: those of all."""
        return None if self.is_admin else self.project_id

    def sees(self, project_id: str) -> bool:
        """Return whether what belongs to a project exists for this client."""
        return self.is_admin or project_id == self.project_id


class Owned(Protocol):
    """What belongs to a project."""

    @property
    def project_id(self) -> str: ...


R = TypeVar("R", bound=Owned)


def visible(row: R | None, ctx: RequestContext | None, resource: str, ident: str) -> R:
    """Return a row that exists for this client; ``ctx`` None is a step of a job.

    :raises NotFound: there is no row, or it belongs to another project.
    """
    shown = row is not None and (ctx is None or ctx.sees(row.project_id))
    return existing(row if shown else None, resource, ident)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The attachment of one volume to one host, which may not be known yet.

    ``mode`` is None until it is resolved at connect. ``connector`` is as the client
    sent it. ``connection_info`` is what the host needs to log in, without
    credentials. ``former_initiator`` is the one that ``initiator`` has replaced, until
    its access is known to be closed; it is the same one while the host loses its write
    access. ``answered`` says that the client has had time
    to read the answer with its id. ``status_reason`` is the error of an attachment
    in an error status. ``legacy`` names the action of the volume that made it, such
    as os-reserve, or is None; ``announced`` says that os-begin_detaching was called.
    ``user_id`` is who asked for it. ``fence`` is what an administrator has taken from
    its host, ``fenced_at`` when the target has answered that this is so.
    ``former_host`` is the host of ``former_initiator``.
    ``lease`` is the latest lease of its write access: ``ttl`` (seconds), ``then`` (next
    or None), ``boot`` (whose clock it is of), and ``ended_at`` once it has ended. Until
    then ``lease_ends`` is when, of lunshare.agent.boot_clock.
    """

    id: str
    volume_id: str
    status: AttachStatus
    mode: Mode | None = None
    instance_uuid: str | None = None
    attached_host: str | None = None
    mountpoint: str | None = None
    attach_time: datetime | None = None
    announced: bool = False
    detach_time: datetime | None = None
    connector: Mapping[str, Any] | None = None
    connection_info: Mapping[str, Any] | None = None
    initiator: str | None = None
    auth_username: str | None = None
    auth_password: str | None = field(default=None, repr=False)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    former_initiator: str | None = None
    status_reason: str | None = None
    answered: bool = True
    legacy: str | None = None
    user_id: str | None = None
    fence: FenceKind | None = None
    fenced_at: datetime | None = None
    former_host: str | None = None
    lease: Mapping[str, Any] | None = None
    lease_ends: float | None = None

    @property
    def seen_status(self) -> AttachStatus:
        """The status that counts for the volume's: detaching once it is announced."""
        if self.announced and self.status is AttachStatus.ATTACHED:
            return AttachStatus.DETACHING
        return self.status

    @property
    def writes(self) -> bool:
        """Whether its mode lets the host write; False where it has none yet."""
        return self.mode is not None and self.mode is not Mode.RO

    @property
    def is_fencing(self) -> bool:
        """Whether writes of its host, which may not write any more, may still land."""
        if self.fence is not None and self.fenced_at is None:
            return True
        return bool(self.initiator) and self.former_initiator == self.initiator

    @property
    def is_fenced(self) -> bool:
        """Whether its host is fenced, and the target has answered that it is so."""
        return self.fenced_at is not None and self.former_initiator is None

    @property
    def initiators(self) -> tuple[str, ...]:
        """Who may have access through this row, the replaced initiator first."""
        return tuple(filter(None, (self.former_initiator, self.initiator)))


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume with its attachments that are not deleted.

    ``backend`` is empty where no pool could hold it: such a volume is in error, and
    has no disk.
    ``intent`` is what a restart needs, beside the status, to finish an operation:
    ``size`` (GiB) of an extend; ``snapshot_id`` of a revert; ``source_size``
    (GiB) and ``has_snapshot`` (whether its temporary snapshot exists) of a clone that
    is not complete; ``reference`` of a disk to manage; ``backend`` of a migration, with
    ``type_id`` and ``multiattach`` of a retype. ``stale_backend`` still has a disk of
    it, which will be deleted. ``readonly``: new attachments are ro;
    None if it was never set. ``reset_from`` is the own status that the row had before
    an administrator set the present one. No operation works on such a volume.
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
    stale_backend: str | None = None
    migration_status: str | None = None
    status_reason: str | None = None
    readonly: bool | None = None
    image_metadata: Mapping[str, str] = field(default_factory=dict)
    reset_from: VolumeStatus | None = None
    attachments: tuple[Attachment, ...] = ()

    @property
    def status(self) -> VolumeStatus:
        """The status that clients see; see lunshare.agent.model.states."""
        return volume_status(
            self.own_status, [row.seen_status for row in self.attachments]
        )


@dataclass(frozen=True, slots=True)
class NamedVolume:
    """A volume without what may be large, as in a list without detail."""

    id: str
    name: str | None
    backend: str
    project_id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bytes that a volume had at one moment; ``size`` is its size then.

    ``status_reason`` and ``reset_from`` are as of a volume; ``progress`` is what a
    client has set with os-update_snapshot_status, None where none has. ``reference``
    is the foreign snapshot that it becomes, until its manage is complete.
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
    reset_from: SnapshotStatus | None = None
    progress: str | None = None
    reference: str | None = None


#: The extra spec that lets the hosts of a type's volumes use SCSI reservations.
RESERVATIONS = "lunshare:reservations"
#: The two values of an extra spec that is a boolean. Only these spellings count.
YES, NO = "<is> True", "<is> False"


@dataclass(frozen=True, slots=True)
class VolumeType:
    """A named set of extra specs for volumes. ``encrypted``: it has an encryption."""

    id: str
    name: str
    description: str | None = None
    is_public: bool = True
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    qos_specs_id: str | None = None
    encrypted: bool = False

    @property
    def multiattach(self) -> bool:
        """Whether several hosts may use it. Only this exact spelling counts."""
        return self.extra_specs.get("multiattach") == YES


@dataclass(frozen=True, slots=True)
class NewVolume:
    """A checked request to create a volume. ``volume_type`` is an id or a name.

    Without a size it is as large as its source. It has at most one source.
    ``same_host`` and ``different_host`` are ids of volumes whose backends it shall
    share, or shall not.
    """

    size: int | None
    name: str | None = None
    description: str | None = None
    volume_type: str | None = None
    availability_zone: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    snapshot_id: str | None = None
    source_volid: str | None = None
    same_host: tuple[str, ...] = ()
    different_host: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A checked request for a snapshot; ``in_use``: also while hosts use the volume."""

    volume_id: str
    name: str | None = None
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class ManageRequest:
    """A checked request to manage a foreign disk, whose name is ``reference``.

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
class ManageSnapshotRequest:
    """A checked request to manage a foreign snapshot of a volume."""

    volume_id: str
    reference: str
    name: str | None = None
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


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
    """A checked request for an attachment; with a connector it opens at once.

    ``legacy`` names the action of the volume that asks for it, if one does.
    """

    volume_id: str
    instance_uuid: str | None = None
    mode: Mode | None = None
    connector: HostConnector | None = None
    legacy: str | None = None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A checked request to attach many hosts to a volume, all or none.

    ``key`` is that of the request: with it, the same request has the same answer.
    """

    volume_id: str
    key: str
    hosts: Sequence[HostConnector]
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of a list, in which order.

    ``sort`` holds (column, descending) pairs; ``filters`` column to value;
    ``project_id`` None means every project. ``marker`` is the id of the last row
    that the client has.
    """

    project_id: str | None
    limit: int
    marker: str | None = None
    offset: int = 0
    sort: tuple[tuple[str, bool], ...] = (("created_at", True),)
    filters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """One backend as a scheduler sees it: host@backend#pool and its pool stats.

    ``problem`` says why it is down, ``closed`` why it is up and gets no new volumes.
    Both are empty otherwise. ``sector`` is the logical sector size of its disks.
    """

    name: str
    backend: str
    capabilities: Mapping[str, Any]
    problem: str = ""
    closed: str = ""
    enabled: bool = True
    zone: str = "nova"
    sector: int = 512

    @property
    def up(self) -> bool:
        """Whether its last check found no problem."""
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
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """Whether this node is ready, and one sentence for each problem."""

    ready: bool
    problems: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    #: By backend, who reaches its portals, as the last reconcile has seen it.
    portals: Mapping[str, PortalGuard] = field(default_factory=dict)
