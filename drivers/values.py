# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The words drivers and callers share: plain values, checked when made.

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
# date is the one rtslib accepts, so that targetcli can show what we make.
_ISCSI_NAME = re.compile(
    r"iqn\.[0-9]{4}-(0[1-9]|1[0-2])\.[a-z0-9-]+\.[^\s/:,]+(:[^\s/,]+)?"
    r"|naa\.[0-9a-f]{16}([0-9a-f]{16})?"
    r"|eui\.[0-9a-f]{16}"
)
_ISCSI_NAME_MAX = 223
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Mode(enum.StrEnum):
    """What a host may do with a volume."""

    RO = "ro"
    RW = "rw"


class DiskKind(enum.StrEnum):
    """How the kernel reaches the bytes: a block device or a file."""

    BLOCK = "block"
    FILE = "file"


def iscsi_name(text: object, name: str = "initiator") -> str:
    """Return ``text`` in lower case if it is an iSCSI name, else raise InvalidValue.

    Names compare without regard to case (RFC 7143 section 4.2.7.1) and the
    kernel keeps ACLs in lower case.
    """
    if isinstance(text, str) and len(text) <= _ISCSI_NAME_MAX:
        lowered = _lowered(text)
        if lowered is not None:
            return lowered
    raise InvalidValue(
        name, text, "give an iSCSI name such as iqn.1994-05.com.example:host1"
    )


@functools.lru_cache(maxsize=1024)
def _lowered(text: str) -> str | None:
    """None when it is no iSCSI name. The hosts of a node come again and again."""
    lowered = text.lower()
    # Beyond ASCII the kernel's names and ours could differ, and a name is part of a
    # path and of log lines.
    if text.isascii() and text.isprintable() and _ISCSI_NAME.fullmatch(lowered):
        return lowered
    return None


@dataclass(frozen=True, slots=True)
class Volume:
    """What a driver needs to know of a volume: its id (UUID) and size in bytes."""

    id: str
    size: int

    def __post_init__(self) -> None:
        volume_uuid(self.id)

    @property
    def name(self) -> str:
        """The name on disk and in the target: it is derived, never stored."""
        return f"volume-{self.id}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bytes of one volume at one moment: ids (UUIDs), and the size in bytes."""

    id: str
    volume_id: str
    size: int

    def __post_init__(self) -> None:
        volume_uuid(self.id, "snapshot id")
        volume_uuid(self.volume_id)

    @property
    def name(self) -> str:
        """The name on disk; LVM keeps names that begin with "snapshot" for itself."""
        return f"_snapshot-{self.id}"


def volume_uuid(text: str, name: str = "volume id") -> str:
    """Return ``text`` if it is a canonical UUID, else raise InvalidValue."""
    if isinstance(text, str) and _UUID.fullmatch(text):
        return text
    raise InvalidValue(name, text, "give a UUID in its canonical form")


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume's bytes on this node, ready to be opened at ``path``."""

    volume_id: str
    path: str
    size: int
    kind: DiskKind = DiskKind.BLOCK


@dataclass(frozen=True, slots=True)
class Auth:
    """One initiator's CHAP credentials. The password never prints."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Connector:
    """One host's access to one volume: who it is and what it may do.

    ``attachment_id`` is kept on the live ACL, so that the target tells by
    itself which attachment opened it.
    """

    initiator: str
    mode: Mode
    attachment_id: str = ""
    auth: Auth | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "initiator", iscsi_name(self.initiator))


@dataclass(frozen=True, slots=True)
class Export:
    """The wanted state of one volume at the target.

    ``disk`` may be None where ``connectors`` is empty: closing an access must
    work when the disk is lost.
    """

    volume_id: str
    disk: Disk | None = None
    connectors: tuple[Connector, ...] = ()

    def __post_init__(self) -> None:
        volume_uuid(self.volume_id)
        if self.connectors and self.disk is None:
            raise InvalidValue("disk", None, "an export to hosts needs a disk")


@dataclass(frozen=True, slots=True)
class LiveConnector:
    """One ACL as the target has it now. ``mode`` is None when nothing is mapped.

    ``addresses`` are those that the host's sessions come from, as far as the
    target tells.
    """

    initiator: str
    mode: Mode | None
    attachment_id: str = ""
    sessions: int = 0
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveExport:
    """One export of ours as the target has it now."""

    volume_id: str
    connectors: tuple[LiveConnector, ...]
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Portal:
    """An address that initiators log in to."""

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
    """What a pool holds, in bytes.

    ``free`` is physical room. ``provisioned`` is the sum of the sizes promised
    to volumes; on a thin pool it may exceed ``total``. ``closed`` is a sentence
    saying why the pool takes nothing new, or empty. A thin pool tells how full
    it is, in percent.
    """

    total: int
    free: int
    provisioned: int
    thin: bool
    closed: str = ""
    data_percent: float | None = None
    metadata_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Manageable:
    """A disk in the pool that is not ours, and that a volume could take over.

    ``reference`` is what its owner calls it, ``size`` is in bytes, ``why_not``
    says why it cannot be taken over, or is empty.
    """

    reference: str
    size: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Wipe:
    """A deleted disk whose bytes are still being wiped: its bytes, and those left."""

    name: str
    size: int
    left: int
