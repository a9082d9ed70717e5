# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The tables; lunshare.agent.db.schema_version has their version.

Deleted rows of volumes, snapshots and attachments are marked (``deleted``), and stay
until lunshare.agent.db.purge removes them, to show which host had which volume.
Every index that a request uses covers only rows that are not deleted, or starts with
a column that separates them, so deleted rows do not slow requests down.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa

from lunshare.agent.db import triggers
from lunshare.agent.model.records import Mode
from lunshare.agent.model.states import (
    AttachStatus,
    FenceKind,
    SnapshotStatus,
    VolumeStatus,
)

METADATA = sa.MetaData()
M = TypeVar("M", bound=enum.StrEnum)


class _Members(dict[str | None, M | None]):
    """A member by its value; to call the enumeration would take eight times as long."""

    def __init__(self, kind: type[M]) -> None:
        super().__init__({member.value: member for member in kind})
        self[None] = None
        self._kind = kind

    def __missing__(self, value: Any) -> M:
        return self._kind(value)  # it raises ValueError


class Member(sa.types.TypeDecorator[M]):
    """A text that is read as a member of an enumeration.

    :raises ValueError: the row has another text.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, kind: type[M], length: int = 255) -> None:
        super().__init__(length)
        self.kind = kind

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        return _Members(self.kind).__getitem__


class JsonText(sa.types.TypeDecorator[Any]):
    """JSON in a column of the type TEXT."""

    impl = sa.Text
    cache_ok = True

    def bind_processor(self, dialect: Any) -> Callable[[Any], Any]:
        return lambda value: None if value is None else orjson.dumps(value).decode()

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        return lambda text: orjson.loads(text) if text else None


def listed(name: str) -> sa.Select[Any]:
    """Return the values of a parameter that is a list; ``Prepared`` allows no other."""
    values = sa.func.json_each(sa.bindparam(name, type_=JsonText))
    return sa.select(values.table_valued("value").c.value)


def _id(name: str = "id", **keywords: object) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), nullable=False, **keywords)  # type: ignore[arg-type]


def _text(
    name: str, length: int = 255, nullable: bool = True, key: str | None = None
) -> sa.Column[str]:
    """``key``: the name of the field, where that of the column says less."""
    return sa.Column(name, sa.String(length), nullable=nullable, key=key)


def _member(
    name: str, kind: type[M], *, nullable: bool = False, length: int = 255
) -> sa.Column[M]:
    return sa.Column(name, Member(kind, length), nullable=nullable)


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, default=False)


VOLUMES = sa.Table(
    "volumes",
    METADATA,
    _id(primary_key=True),
    _text("display_name"),
    _text("display_description"),
    sa.Column("size", sa.Integer, nullable=False),  # GiB
    _member("status", VolumeStatus),  # without attachments; see agent.model.states
    _text("status_reason", 1024),
    _text("backend", nullable=False),  # "" where no pool could hold it
    _text("project_id", nullable=False),
    _text("user_id", nullable=False),
    _text("availability_zone", nullable=False),
    _flag("multiattach"),
    _flag("bootable"),
    _text("volume_type_id", 36),
    sa.Column("metadata", sa.JSON, nullable=False),
    _time("created_at"),
    _time("updated_at"),
    _time("deleted_at"),
    _flag("deleted"),
    _text("snapshot_id", 36),
    _text("source_volid", 36),
    # Work in progress, with the status; see lunshare.agent.model.records.Volume.
    sa.Column("intent", sa.JSON(none_as_null=True)),
    _text("leaving", key="stale_backend"),  # until the disk there is deleted
    _text("migration_status"),
    sa.Column("readonly", sa.Boolean),  # NULL until it is set
    sa.Column("image_metadata", sa.JSON, nullable=False, server_default="{}"),
    # Its status before an administrator set another one.
    _member("reset_from", VolumeStatus, nullable=True),
)

SNAPSHOTS = sa.Table(
    "snapshots",
    METADATA,
    _id(primary_key=True),
    sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False),
    _text("display_name"),
    _text("display_description"),
    sa.Column("volume_size", sa.Integer, nullable=False),  # GiB, at its creation
    _member("status", SnapshotStatus),
    _text("status_reason", 1024),
    _text("project_id", nullable=False),
    _text("user_id", nullable=False),
    sa.Column("metadata", sa.JSON, nullable=False),
    _time("created_at"),
    _time("updated_at"),
    _time("deleted_at"),
    _flag("deleted"),
    # The order of the snapshots of a volume: a clock may be set back.
    sa.Column("sequence", sa.Integer, nullable=False, server_default="0"),
    _member("reset_from", SnapshotStatus, nullable=True),  # as of a volume
    _text("progress"),  # as os-update_snapshot_status has set it
    _text("volume_type_id", 36),  # of its volume when it was created, for quotas
    _text("reference"),  # of a foreign snapshot, until its manage is complete
)

VOLUME_ATTACHMENT = sa.Table(
    "volume_attachment",
    METADATA,
    _id(primary_key=True),
    sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False),
    _text("instance_uuid", 36),
    _text("attached_host"),
    _text("mountpoint"),
    _time("attach_time"),
    _time("detach_time"),
    _member("attach_status", AttachStatus),
    _member("attach_mode", Mode, nullable=True, length=2),
    sa.Column("connector", JsonText),  # as the client sent it
    sa.Column("connection_info", JsonText),  # without credentials
    _text("initiator"),
    _text("leaving", key="former_initiator"),  # until its access is closed
    _text("auth_username"),
    _text("auth_password"),
    _time("created_at"),
    _time("updated_at"),
    _time("deleted_at"),
    _flag("deleted"),
    _text("status_reason", 1024),
    # Whether the answer to its creation has been sent (service/attachments/unanswered).
    sa.Column("answered", sa.Boolean, nullable=False, server_default="1"),
    # By which action of the volume it was made (service/attachments/legacy), if any;
    # and whether os-begin_detaching was called.
    _text("legacy"),
    sa.Column("announced", sa.Boolean, nullable=False, server_default="0"),
    _text("user_id"),
    # What a row of host_fences takes from its host; when the target has answered.
    _member("fence", FenceKind, nullable=True, length=8),
    _time("fenced_at"),
    _text("former_host"),  # whose access it was that is leaving
    # See lunshare.agent.model.records.Attachment.
    sa.Column("lease", JsonText),
    sa.Column("lease_ends", sa.Float),
)

TRANSFERS = sa.Table(
    "transfers",
    METADATA,
    _id(primary_key=True),
    sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False),
    _text("display_name"),
    _text("salt", nullable=False),
    _text("key_hash", nullable=False),  # of the salt and the auth key
    _flag("no_snapshots"),
    _text("source_project_id", nullable=False),
    sa.Column("created_at", sa.DateTime, nullable=False),
)
sa.Index("transfers_of_volume", TRANSFERS.c.volume_id, unique=True)

VOLUME_TYPES = sa.Table(
    "volume_types",
    METADATA,
    _id(primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    _text("description"),
    sa.Column("is_public", sa.Boolean, nullable=False),
    _time("created_at"),
    _time("updated_at"),
    _text("qos_specs_id", 36),
)

VOLUME_TYPE_EXTRA_SPECS = sa.Table(
    "volume_type_extra_specs",
    METADATA,
    sa.Column(
        "volume_type_id",
        sa.String(36),
        sa.ForeignKey("volume_types.id"),
        primary_key=True,
    ),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
)

# How hosts would encrypt the volumes of a type.
TYPE_ENCRYPTION = sa.Table(
    "type_encryption",
    METADATA,
    sa.Column(
        "volume_type_id",
        sa.String(36),
        sa.ForeignKey("volume_types.id"),
        primary_key=True,
    ),
    _id("encryption_id"),
    _text("provider", nullable=False),
    _text("control_location", 16, nullable=False),
    _text("cipher"),
    sa.Column("key_size", sa.Integer),
    sa.Column("created_at", sa.DateTime, nullable=False),
    _time("updated_at"),
)

# Which projects may use a type that is not public.
VOLUME_TYPE_PROJECTS = sa.Table(
    "volume_type_projects",
    METADATA,
    sa.Column("volume_type_id", sa.String(36), primary_key=True),
    sa.Column("project_id", sa.String(255), primary_key=True),
)

DEFAULT_VOLUME_TYPES = sa.Table(
    "default_volume_types",
    METADATA,
    sa.Column("project_id", sa.String(255), primary_key=True),
    sa.Column("volume_type_id", sa.String(36), nullable=False),
)

QOS_SPECS = sa.Table(
    "qos_specs",
    METADATA,
    _id(primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("consumer", sa.String(16), nullable=False),
    sa.Column("specs", sa.JSON, nullable=False),
    _time("created_at"),
)

SERVICES = sa.Table(
    "services",
    METADATA,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("binary", sa.String(255), primary_key=True),
    _flag("disabled"),
    _text("disabled_reason"),
    _time("updated_at"),
    sa.Column("frozen", sa.Boolean, nullable=False, server_default="0"),
)

MESSAGES = sa.Table(
    "messages",
    METADATA,
    _id(primary_key=True),
    _text("project_id", nullable=False),
    _text("event_id", nullable=False),
    _text("user_message", 1024, nullable=False),
    _text("message_level", nullable=False),
    _text("resource_type"),
    _text("resource_uuid", 36),
    _text("request_id", nullable=False),
    sa.Column("created_at", sa.DateTime, nullable=False),
    sa.Column("expires_at", sa.DateTime, nullable=False),
)

# Limits that differ from the options: of a project, or of the class of all projects.
QUOTAS = sa.Table(
    "quotas",
    METADATA,
    sa.Column("scope", sa.String(16), primary_key=True),  # project or class
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(255), primary_key=True),
    sa.Column("volume_type_id", sa.String(36), primary_key=True),  # "" is all types
    sa.Column("hard_limit", sa.Integer, nullable=False),
)

# What projects have, per volume type ("" is none); lunshare.agent.db.triggers.
QUOTA_USAGE = sa.Table(
    "quota_usage",
    METADATA,
    sa.Column("project_id", sa.String(255), primary_key=True),
    sa.Column("volume_type_id", sa.String(36), primary_key=True),
    sa.Column("volumes", sa.Integer, nullable=False),
    sa.Column("gigabytes", sa.Integer, nullable=False),
    sa.Column("snapshots", sa.Integer, nullable=False),
    sa.Column("snapshot_gigabytes", sa.Integer, nullable=False),
)

# Volumes by backend, attachments by mode; lunshare.agent.db.triggers.
STATUS_TOTALS = sa.Table(
    "status_totals",
    METADATA,
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("place", sa.String(255), primary_key=True),
    sa.Column("status", sa.String(255), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
)
# Of a volume whose hosts have lost write access: its fencing generation, which only
# grows (lunshare.agent.db.triggers), and its latest handover.
WRITE_FENCES = sa.Table(
    "write_fences",
    METADATA,
    _id("volume_id", primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("handover", JsonText),
)
# Hosts that are fenced, also before they have an attachment. ``name`` is the one that
# the request gave, or an initiator that this host had: the kernel knows no other name.
HOST_FENCES = sa.Table(
    "host_fences",
    METADATA,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("host", sa.String(255), primary_key=True),
    _member("fence", FenceKind, length=8),
    sa.Column("created_at", sa.DateTime, nullable=False),
)
sa.Index("host_fences_of_host", HOST_FENCES.c.host)
triggers.attach(METADATA)


def _dead(name: str, table: sa.Table) -> None:
    """Add an index over the rows that are deleted, by age."""
    deleted = table.c.deleted == sa.true()
    sa.Index(name, table.c.deleted_at, sqlite_where=deleted)


def _live(name: str, table: sa.Table, *columns: str) -> None:
    """Add an index over the rows that are not deleted."""
    there = table.c.deleted == sa.false()
    sa.Index(name, *(table.c[column] for column in columns), sqlite_where=there)


_live("volumes_page", VOLUMES, "created_at", "id")
_live("volumes_project_page", VOLUMES, "project_id", "created_at", "id")
_live("volumes_backend", VOLUMES, "backend", "status")
_live("volumes_type", VOLUMES, "volume_type_id")
_live("volumes_of_snapshot", VOLUMES, "snapshot_id")
_live("volumes_of_source", VOLUMES, "source_volid")
_live("snapshots_page", SNAPSHOTS, "created_at", "id")
_live("snapshots_project_page", SNAPSHOTS, "project_id", "created_at", "id")
_live("attachments_of_initiator", VOLUME_ATTACHMENT, "volume_id", "initiator")
sa.Index(
    "attachments_at_address",
    sa.text("json_extract(connector, '$.ip')"),
    sqlite_where=VOLUME_ATTACHMENT.c.deleted == sa.false(),
    _table=VOLUME_ATTACHMENT,
)
#: An access that may be rw: its own, or that of the initiator before its connector.
MAY_WRITE = sa.text(
    "(attach_mode = 'rw' AND initiator IS NOT NULL OR leaving IS NOT NULL)"
)
sa.Index(
    "attachments_that_may_write",
    VOLUME_ATTACHMENT.c.volume_id,
    sqlite_where=sa.and_(VOLUME_ATTACHMENT.c.deleted == sa.false(), MAY_WRITE),
)
_live("attachments_page", VOLUME_ATTACHMENT, "created_at", "id")
_live("attachments_of_instance", VOLUME_ATTACHMENT, "instance_uuid")
# A fence names a host, on every volume.
sa.Index(
    "attachments_by_host_name",
    VOLUME_ATTACHMENT.c.attached_host.collate("NOCASE"),
    sqlite_where=VOLUME_ATTACHMENT.c.deleted == sa.false(),
)
_live("attachments_by_initiator", VOLUME_ATTACHMENT, "initiator")
# Leases that have not ended.
sa.Index(
    "attachments_leased",
    VOLUME_ATTACHMENT.c.lease_ends,
    sqlite_where=sa.text("deleted = 0 AND lease_ends IS NOT NULL"),
)
for _name, _former in (
    ("initiator", VOLUME_ATTACHMENT.c.former_initiator),
    ("host_name", VOLUME_ATTACHMENT.c.former_host.collate("NOCASE")),
):
    sa.Index(
        f"attachments_by_former_{_name}",
        _former,
        sqlite_where=sa.text("deleted = 0 AND leaving IS NOT NULL"),
    )
# Those that os-attach may have named otherwise than their host names itself.
sa.Index(
    "attachments_by_sent_host",
    sa.text("json_extract(connector, '$.host') COLLATE NOCASE"),
    sqlite_where=sa.text(
        "deleted = 0 AND legacy IS NOT NULL AND initiator IS NOT NULL"
    ),
    _table=VOLUME_ATTACHMENT,
)
sa.Index(
    "attachments_fenced",
    VOLUME_ATTACHMENT.c.fence,
    sqlite_where=sa.text("deleted = 0 AND fence IS NOT NULL"),
)
# These two cover all rows: when a volume is purged, SQLite searches its rows here for
# the foreign key, and cannot use a partial index for that.
_OF_VOLUME = ("volume_id", "deleted", "sequence")
sa.Index("snapshots_of_volume", *(SNAPSHOTS.c[name] for name in _OF_VOLUME))
# Not the status alone: SQLite would use such an index for "has this volume an
# attached host", and read every attached host of the node for each volume of a
# list (measured: 8.5 s for a page of 1,000 of 10,000 volumes; now 0.1 s).
sa.Index(
    "attachments_of_volume",
    *(VOLUME_ATTACHMENT.c[c] for c in ("volume_id", "deleted", "attach_status")),
)
sa.Index(
    "attachments_unanswered",
    VOLUME_ATTACHMENT.c.volume_id,
    sqlite_where=VOLUME_ATTACHMENT.c.answered == sa.false(),
)
_dead("volumes_gone", VOLUMES)
_dead("snapshots_gone", SNAPSHOTS)
_dead("attachments_gone", VOLUME_ATTACHMENT)
