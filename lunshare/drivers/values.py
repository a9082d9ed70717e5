# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Values that drivers and their callers exchange. Each is checked when created.

Sizes are bytes. Nothing here does I/O.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
import re
from dataclasses import dataclass, field

from lunshare.drivers.errors import InvalidValue

GIB = 1024**3

# RFC 7143 section 4.2.7.2 limits a name to 223 bytes. The pattern after the
# date is the one that rtslib accepts, so targetcli can show these targets.
_ISCSI_NAME = re.compile(
    r"iqn\.[0-9]{4}-(0[1-9]|1[0-2])\.[a-z0-9-]+\.[^\s/:,]+(:[^\s/,]+)?"
    r"|naa\.[0-9a-f]{16}([0-9a-f]{16})?"
    r"|eui\.[0-9a-f]{16}"
)
_ISCSI_NAME_MAX = 223

#: The expression of a UUID in its canonical form; it has no group.
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Returns a match if a text is such a UUID, else None.
is_uuid = re.compile(UUID).fullmatch


class Mode(enum.StrEnum):
    """What a host may do with a volume: read, or read and write."""

    RO = "ro"
    RW = "rw"


class DiskKind(enum.StrEnum):
    """How the kernel reaches the bytes: a block device or a file."""

    BLOCK = "block"
    FILE = "file"


def iscsi_name(text: object, name: str = "initiator") -> str:
    """Return the iSCSI name ``text`` in lower case.

    Names compare without regard to case (RFC 7143 section 4.2.7.1), and the
    kernel stores ACLs in lower case.

    :raises InvalidValue: it is not an iSCSI name; ``name`` says of what.
    """
    if isinstance(text, str) and len(text) <= _ISCSI_NAME_MAX:
        lowered = _lower_case(text)
        if lowered is not None:
            return lowered
    raise InvalidValue(
        name, text, "give an iSCSI name such as iqn.1994-05.com.example:host1"
    )


def plain_name(name: str) -> str:
    """Return the name of a computer as names are compared: ASCII has no case.

    As in the DNS (RFC 4343), which keeps the case of all other letters.
    """
    return name.encode().lower().decode()


def host_address(value: object) -> str | None:
    """Return an IP address of one host in its canonical form; None if it is none.

    One that is mapped from IPv4 is that of IPv4, with which the host connects.
    """
    if not isinstance(value, str):
        return None
    try:
        number = ipaddress.ip_address(value)
    except ValueError:
        return None
    scoped = getattr(number, "scope_id", None) is not None
    number = getattr(number, "ipv4_mapped", None) or number
    if number.is_unspecified or number.is_multicast or scoped:
        return None
    return str(number)


@functools.lru_cache(maxsize=1024)
def _lower_case(text: str) -> str | None:
    """None if it is not an iSCSI name. Cached, because hosts of a node recur."""
    lowered = text.lower()
    # Outside ASCII the kernel's lower case may differ from Python's, and a name is
    # part of a path and of log lines.
    if text.isascii() and text.isprintable() and _ISCSI_NAME.fullmatch(lowered):
        return lowered
    return None


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume as drivers know it: its id (UUID), and its size in bytes.

    ``reservations``: whether hosts that may write may also use SCSI reservations.
    """

    id: str
    size: int
    reservations: bool = False

    def __post_init__(self) -> None:
        require_uuid(self.id)

    @property
    def name(self) -> str:
        """The name of its disk and of its target. It is derived, never stored."""
        return f"volume-{self.id}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bytes of one volume at one moment: ids (UUIDs), and the size in bytes."""

    id: str
    volume_id: str
    size: int

    def __post_init__(self) -> None:
        require_uuid(self.id, "snapshot id")
        require_uuid(self.volume_id)

    @property
    def name(self) -> str:
        """The name of its disk; LVM reserves names that begin with "snapshot"."""
        return snapshot_name(self.id)


def snapshot_name(snapshot_id: str) -> str:
    """Return the name of the disk of a snapshot.

    :raises InvalidValue: the id is not a UUID.
    """
    return f"_snapshot-{require_uuid(snapshot_id, 'snapshot id')}"


def require_uuid(text: str, name: str = "volume id") -> str:
    """Return ``text`` if it is a canonical UUID, else raise InvalidValue."""
    if isinstance(text, str) and is_uuid(text):
        return text
    raise InvalidValue(name, text, "give a UUID in its canonical form")


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume's bytes on this node. ``path`` exists and can be opened."""

    volume_id: str
    path: str
    size: int
    kind: DiskKind = DiskKind.BLOCK


@dataclass(frozen=True, slots=True)
class Auth:
    """One initiator's CHAP credentials. The password is not in the repr."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Connector:
    """One host's wanted access to one volume: its initiator name and its mode.

    ``attachment_id`` is stored on the live ACL, so the target itself shows which
    attachment opened it. ``auth`` is None if the host needs no credentials.
    """

    initiator: str
    mode: Mode
    attachment_id: str = ""
    auth: Auth | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "initiator", iscsi_name(self.initiator))


@dataclass(frozen=True, slots=True)
class Export:
    """The wanted state of one volume at the target: every access it should have.

    ``disk`` may be None only if ``connectors`` is empty: an access must close even
    when the disk is lost. ``reservations`` as in ``Volume``.
    """

    volume_id: str
    disk: Disk | None = None
    connectors: tuple[Connector, ...] = ()
    reservations: bool = False

    def __post_init__(self) -> None:
        require_uuid(self.volume_id)
        if self.connectors and self.disk is None:
            raise InvalidValue("disk", None, "an export to hosts needs a disk")


@dataclass(frozen=True, slots=True)
class LiveConnector:
    """One ACL as the target has it now. ``mode`` is None if no LUN is mapped.

    ``sessions`` is their number, None where the target cannot tell which host has how
    many; ``addresses`` are where they come from, if the target reports that.
    ``refused_mib``: how much a host that may only read has tried to write since its
    access was opened, in MiB; None where the target does not count it.
    """

    initiator: str
    mode: Mode | None
    attachment_id: str = ""
    sessions: int | None = 0
    addresses: tuple[str, ...] = ()
    refused_mib: int | None = None


@dataclass(frozen=True, slots=True)
class PortalHost:
    """A host with an attachment, and its address; None if its connector has none."""

    volume_id: str
    initiator: str
    address: str | None


@dataclass(frozen=True, slots=True)
class PortalGuard:
    """Who reaches the portals. ``open`` is why everybody does, or "".

    ``refused``: connections since the firewall was made, at all portals of the node;
    ``sources``: the last of them, each "ADDRESS to ADDRESS", newest first.
    """

    open: str = ""
    refused: int = 0
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """A host's key of a persistent reservation of a volume; one for each of its ports.

    ``holds``: SPC's name of the reservation, if the host holds it, or "".
    """

    initiator: str
    key: str
    holds: str = ""


@dataclass(frozen=True, slots=True)
class LiveExport:
    """One export that lunshare created, as the target has it now.

    ``remains`` are initiators without access that have left what the kernel does not
    let go, each with a sentence; "" where it is not known to be so. ``unread``: why it
    could not be read, and nothing else of it is known; or "".
    """

    volume_id: str
    connectors: tuple[LiveConnector, ...]
    enabled: bool = True
    remains: tuple[tuple[str, str], ...] = ()
    registrations: tuple[Registration, ...] = ()
    unread: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing is exported: only what could not be removed is left."""
        return bool(self.remains) and not self.connectors and not self.enabled

    @property
    def leftovers(self) -> tuple[str, ...]:
        """A sentence for each host that has left something."""
        return tuple(
            f"export of volume {self.volume_id}: {initiator} {why}"
            for initiator, why in self.remains
            if why
        )


@dataclass(frozen=True, slots=True)
class Portal:
    """An IP address and TCP port that initiators log in to."""

    address: str
    port: int = 3260

    def __post_init__(self) -> None:
        try:
            ip = ipaddress.ip_address(self.address)
        except ValueError:
            raise InvalidValue(
                "portal", self.address, "give an IPv4 or IPv6 address"
            ) from None
        object.__setattr__(self, "address", str(ip))
        if not 0 < self.port < 65536:
            raise InvalidValue("portal port", self.port, "give 1 to 65535")

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a pool, in bytes.

    ``free`` is physical space. ``provisioned`` is the sum of the volumes' sizes;
    in a thin pool it may exceed ``total``. ``closed`` is a sentence: why the pool
    accepts no new volumes, snapshots or growth. It is empty if the pool does. The two
    percentages are how full a thin pool is, None if unknown. ``sector`` is the logical
    sector size of its disks: partitions and file systems are at offsets counted in it.
    """

    total: int
    free: int
    provisioned: int
    thin: bool
    closed: str = ""
    data_percent: float | None = None
    metadata_percent: float | None = None
    sector: int = 512


@dataclass(frozen=True, slots=True)
class Manageable:
    """A foreign disk of the pool that could be managed as a volume.

    ``reference`` is its name, ``size`` is in bytes. ``problem`` is why it
    cannot be managed now, or "".
    """

    reference: str
    size: int
    problem: str = ""

    @property
    def gib(self) -> int:
        """The size in GiB, rounded up."""
        return -(-self.size // GIB)


@dataclass(frozen=True, slots=True)
class ManageableSnapshot:
    """A foreign snapshot of volume ``volume_id``, which could be managed.

    The other fields are as in ``Manageable``; ``size`` is that of its bytes.
    """

    reference: str
    size: int
    volume_id: str
    problem: str = ""

    @property
    def gib(self) -> int:
        """The size in GiB, rounded up."""
        return -(-self.size // GIB)


@dataclass(frozen=True, slots=True)
class Wipe:
    """A deleted disk that is being wiped: its size, and the bytes ``left`` to wipe."""

    name: str
    size: int
    left: int
