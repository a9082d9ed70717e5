# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a driver can do beyond what every driver must: a yes or no to each sentence.

A driver class says yes in its ``ABILITIES``; what it leaves out is a no, and a name
that is not here is a TypeError when the class is imported. Everybody asks the same
place: the kit, which holds each sentence against what the driver does; the report to
schedulers; and the agent, which refuses a request that its backend cannot do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from lunshare.drivers.values import DiskKind


def _ability(sentence: str) -> Any:
    # A new ability is a no for every driver that was written before it.
    return field(default=False, metadata={"sentence": sentence})


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAbilities:
    """Of a ``VolumeDriver``. Each sentence is true where its name is True."""

    shares: bool = _ability("One volume may be exported to several hosts at once.")
    reserves_space: bool = _ability(
        "A volume takes all its room when it is made: the storage has allocated every"
        " block, and a pool refuses a volume larger than what is free."
    )
    keeps_snapshots: bool = _ability(
        "The bytes of a volume can be kept as they are at one moment, given back to"
        " it, and made into another volume."
    )
    snapshots_open: bool = _ability(
        "A snapshot can be made of a disk that somebody has open. Where not, that is"
        " refused with DiskBusy."
    )
    loses_snapshots: bool = _ability(
        "A snapshot may lose its bytes while its volume is well, as one does that has"
        " overflowed. It is then refused with LostSnapshot, and can be deleted."
    )
    extends_open: bool = _ability("A disk can grow while hosts have it open.")
    extends_under_snapshots: bool = _ability("A volume that has snapshots can grow.")
    takes_over: bool = _ability(
        "A disk that is not ours can become a volume, and a volume can be given away."
    )
    fills_from_blocks: bool = _ability(
        "A disk can be given all bytes of a block device of this node."
    )
    fills_from_files: bool = _ability(
        "A disk can be given all bytes of a regular file of this node."
    )
    wipes_deleted: bool = _ability(
        "A deleted disk takes room until its bytes are wiped, step by step."
    )
    discards: bool = _ability(
        "Bytes of a volume can be discarded: nobody needs them any longer."
    )

    @property
    def fills(self) -> frozenset[DiskKind]:
        """The kinds of disks whose bytes ``fill`` can take."""
        kinds = {
            DiskKind.BLOCK: self.fills_from_blocks,
            DiskKind.FILE: self.fills_from_files,
        }
        return frozenset(kind for kind, takes in kinds.items() if takes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAbilities:
    """Of a ``TargetDriver``. Each sentence is true where its name is True."""

    enforces_read_only: bool = _ability(
        "A host that has a volume read-only cannot change a byte of it. Where not,"
        " ``apply`` refuses a read-only connector with Unsupported."
    )
    fences: bool = _ability(
        "When an access is closed or loses write, the host's writes under way have"
        " landed and its session is ended before ``apply`` returns."
    )
    keeps_others_out: bool = _ability(
        "Only a host that has an access to a volume reaches it."
    )
    checks_credentials: bool = _ability(
        "A host whose access has credentials gets in with these only."
    )
    observes: bool = _ability(
        "``observe`` says which hosts have which access now, and how many sessions."
    )
    shows_growth: bool = _ability(
        "A host that is logged in sees the new size of a disk when it asks again."
    )


Abilities = VolumeAbilities | TargetAbilities


def sentence(abilities: Abilities, name: str) -> str:
    """The sentence that a name stands for.

    :raises KeyError: there is no such ability.
    """
    return str(
        {each.name: each for each in fields(abilities)}[name].metadata["sentence"]
    )
