# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a driver can do beyond what every driver must do: yes or no to each sentence.

A driver class sets its ``ABILITIES``. An ability that it does not name is a no, and a
name that does not exist is a TypeError when the class is imported. Three places read
them: the conformance kit tests each sentence against the driver, the pool stats
report them to schedulers, and the agent refuses a request that the backend cannot do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from lunshare.drivers.values import DiskKind


def _ability(sentence: str) -> Any:
    # An older driver does not name a new ability, so the default is no.
    return field(default=False, metadata={"sentence": sentence})


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAbilities:
    """Of a ``VolumeDriver``. A name that is True promises its sentence."""

    multiattach: bool = _ability("One volume can be exported to several hosts at once.")
    reserves_space: bool = _ability(
        "A volume gets all its space when it is created: the storage allocates every"
        " block, and a pool refuses a volume that is larger than its free space."
    )
    supports_snapshots: bool = _ability(
        "The driver creates snapshots, reverts a volume to one, and creates volumes"
        " from them."
    )
    clones_at_once: bool = _ability(
        "A volume is cloned in one step, ``clone``, that copies no bytes and needs no"
        " temporary snapshot."
    )
    snapshots_open: bool = _ability(
        "A snapshot can be created while the disk is open. If not, the driver refuses"
        " with DiskBusy."
    )
    loses_snapshots: bool = _ability(
        "A snapshot may lose its bytes while its volume is intact, for example when it"
        " overflows. Its use is then refused with LostSnapshot, and it can be deleted."
    )
    extends_open: bool = _ability("A disk can be extended while hosts have it open.")
    extends_under_snapshots: bool = _ability(
        "A volume that has snapshots can be extended."
    )
    manages: bool = _ability(
        "A foreign disk can be managed as a volume, and a volume can be unmanaged."
    )
    manages_snapshots: bool = _ability(
        "A foreign snapshot of a volume can be managed as a snapshot of it, and a"
        " snapshot can be unmanaged."
    )
    fills_from_blocks: bool = _ability(
        "``fill`` copies all bytes of a block device of this node to a disk."
    )
    fills_from_files: bool = _ability(
        "``fill`` copies all bytes of a regular file of this node to a disk."
    )
    wipes_deleted: bool = _ability(
        "A deleted disk uses space until its bytes are wiped, step by step."
    )
    discards: bool = _ability(
        "A host can discard bytes of a volume that it does not need any more."
    )

    @property
    def fills(self) -> frozenset[DiskKind]:
        """The kinds of disks whose bytes ``fill`` can copy."""
        kinds = {
            DiskKind.BLOCK: self.fills_from_blocks,
            DiskKind.FILE: self.fills_from_files,
        }
        return frozenset(kind for kind, fills in kinds.items() if fills)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAbilities:
    """Of a ``TargetDriver``. A name that is True promises its sentence."""

    enforces_read_only: bool = _ability(
        "A host with read-only access to a volume cannot change a byte of it. If not,"
        " ``apply`` refuses a read-only connector with Unsupported."
    )
    fences: bool = _ability(
        "When an access is closed or loses write, the host's writes in progress are"
        " complete and its session is ended before ``apply`` returns."
    )
    restricts_access: bool = _ability(
        "Only hosts with an access to a volume can reach it."
    )
    checks_credentials: bool = _ability(
        "A host whose access has credentials can log in only with these."
    )
    observes: bool = _ability(
        "``observe`` returns which hosts have which access now, and their sessions."
    )
    compares: bool = _ability(
        "``compare`` finds each difference that ``apply`` would put right, also of"
        " credentials. If not, it finds those of modes that ``observe`` shows."
    )
    shows_growth: bool = _ability(
        "A host that is logged in sees the new size of a disk when it reads it again."
    )


Abilities = VolumeAbilities | TargetAbilities


def sentence(abilities: Abilities, name: str) -> str:
    """Return the sentence of the ability ``name``.

    :raises KeyError: the ability does not exist.
    """
    return str(
        {field.name: field for field in fields(abilities)}[name].metadata["sentence"]
    )
