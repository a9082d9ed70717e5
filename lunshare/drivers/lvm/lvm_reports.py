# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LVM's JSON reports as values. Sizes are bytes.

The format is that of ``--reportformat json --units b --nosuffix``: one object
per row, every value a string (lvmreport(7)). Tested with lvm2 2.03.16.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from lunshare.drivers.errors import DriverError

_HEALTH = {"out_of_data_space": "out_of_data", "ro": "metadata_read_only"}

_Row = dict[str, str]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """One row of vgs; ``extent`` is the size of an extent.

    ``missing`` is how many of its disks are lost; ``disks`` are those present.
    ``device`` is a disk that holds the group's metadata; empty if LVM reports none.
    """

    size: int
    free: int
    extent: int
    tags: tuple[str, ...]
    device: str
    missing: int
    disks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ThinPool:
    """One thin pool. ``zeroes``: the pool zeroes a chunk when it allocates it.

    ``transaction`` is the number of changes of its thin devices that LVM recorded.
    """

    size: int
    zeroes: bool
    transaction: int


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """How full a thin pool is.

    ``health`` is empty if there is no problem, or LVM's word, such as ``out_of_data``.
    ``transaction`` is the kernel's number of changes; -1 for a pool that failed.
    """

    data_percent: float
    metadata_percent: float
    health: str
    transaction: int = -1


@dataclass(frozen=True, slots=True)
class LogicalVolume:
    """One row of lvs. ``pool`` is its thin pool; empty for a thick volume."""

    name: str
    size: int
    pool: str


@dataclass(frozen=True, slots=True)
class VolumeDetails:
    """A logical volume with all fields; LVM asks the kernel for some of them.

    ``origin`` is the volume of a snapshot. ``layout`` and ``roles`` are LVM's words.
    ``lost``: a thick snapshot overflowed, and its bytes are lost. ``merging``: a
    snapshot is being merged into this volume.
    """

    name: str
    size: int
    pool: str
    origin: str
    tags: tuple[str, ...]
    layout: tuple[str, ...]
    roles: tuple[str, ...]
    writable: bool
    open: bool
    lost: bool
    merging: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of extents of one logical volume, such as ``/dev/sda:0-24``."""

    size: int
    extents: str


def volume_group(text: str) -> VolumeGroup:
    """Read a report of vgs on one group: it has one row for each disk."""
    rows = _read(text, "vg", _group)
    first = next((row for row in rows if row.device), rows[0])
    return replace(first, disks=tuple(disk for row in rows for disk in row.disks))


def pool_usage(text: str) -> PoolUsage:
    """Read the kernel's status of a thin pool.

    Its format: Documentation/admin-guide/device-mapper/thin-provisioning.rst. The
    words of ``health`` are LVM's (lvs(8), lv_health_status).
    """
    words = text.split()
    if words[:1] in (["Fail"], ["Error"]):
        return PoolUsage(100, 100, "failed")
    try:
        metadata, data = (_percent(word) for word in words[1:3])
        return PoolUsage(data, metadata, _HEALTH.get(words[4], ""), int(words[0]))
    except (ValueError, IndexError) as error:
        raise DriverError(
            f"a pool's status does not have the known format: {text}"
        ) from error


def mapped_bytes(name: str, text: str) -> int:
    """Read the kernel's status of a thin volume: its first word is in sectors."""
    try:
        return 512 * int(text.split(maxsplit=1)[0])
    except (ValueError, IndexError) as error:
        raise DriverError(f"{name}: the kernel's status of it is {text!r}") from error


def logical_volumes(text: str) -> tuple[LogicalVolume, ...]:
    """Read a report of lvs with names, sizes and pools."""
    return _read(text, "lv", _volume)


def volume_details(text: str) -> tuple[VolumeDetails, ...]:
    """Read a report of lvs with the fields of ``VolumeDetails``."""
    return _read(text, "lv", _details)


def partial_volumes(text: str) -> frozenset[str]:
    """Read a report of lvs; return the names of those that need a lost disk."""
    names = _read(text, "lv", _partial_name)
    return frozenset(name for name in names if name)


def pools(text: str) -> tuple[ThinPool, ...]:
    """Read a report of lvs; logical volumes that are not thin pools are skipped."""
    return tuple(pool for pool in _read(text, "lv", _pool) if pool)


def merge_progress(text: str) -> str | None:
    """Read a report of lvs on one volume; return its data percent while it merges."""
    return next(iter(_read(text, "lv", _merge_progress)), None)


def segments(text: str) -> tuple[Segment, ...]:
    """Read a report of lvs --segments."""
    return _read(text, "seg", _segment)


def _group(row: _Row) -> VolumeGroup:
    size, free, extent = (
        int(row[key]) for key in ("vg_size", "vg_free", "vg_extent_size")
    )
    metadata_copies = int(row["pv_mda_used_count"] or 0)
    return VolumeGroup(
        size,
        free,
        extent,
        _items(row["vg_tags"]),
        row["pv_name"] if metadata_copies else "",
        int(row["vg_missing_pv_count"]),
        (row["pv_name"],) if row["pv_name"].startswith("/") else (),
    )


def _volume(row: _Row) -> LogicalVolume:
    return LogicalVolume(row["lv_name"], int(row["lv_size"]), row["pool_lv"])


def _details(row: _Row) -> VolumeDetails:
    return VolumeDetails(
        name=row["lv_name"],
        size=int(row["lv_size"]),
        pool=row["pool_lv"],
        origin=row["origin"],
        tags=_items(row["lv_tags"]),
        layout=_items(row["lv_layout"]),
        roles=_items(row["lv_role"]),
        # LVM reports "unknown" for what is not active: a writable volume, and the next
        # two. A volume is "read-only" also then (_lvpermissions_disp, lvm2 2.03.16).
        writable=not row["lv_permissions"].startswith("read-only"),
        open=row["lv_device_open"] == "open",
        lost=row["lv_snapshot_invalid"] == "snapshot invalid",
        merging=row["lv_merging"] == "merging",
    )


def _merge_progress(row: _Row) -> str | None:
    return row["data_percent"] if row["lv_merging"] == "merging" else None


def _partial_name(row: _Row) -> str:
    return row["lv_name"] if row["lv_health_status"] == "partial" else ""


def _pool(row: _Row) -> ThinPool | None:
    if row["segtype"] != "thin-pool":
        return None
    size, transaction = int(row["lv_size"]), int(row["transaction_id"])
    return ThinPool(size, row["zero"] != "", transaction)


def _segment(row: _Row) -> Segment:
    return Segment(int(row["seg_size"]), row["seg_pe_ranges"])


def _percent(text: str) -> float:
    """Convert ``used/total`` to percent with two digits, as LVM does."""
    used, total = (int(number) for number in text.split("/"))
    return round(100 * used / total, 2)


def _items(text: str) -> tuple[str, ...]:
    """Split a list field, whose items are separated by commas."""
    return tuple(filter(None, text.split(",")))


def _read(text: str, kind: str, build: Callable[[_Row], _Value]) -> tuple[_Value, ...]:
    try:
        parts = json.loads(text)["report"]
        return tuple(build(row) for part in parts for row in part[kind])
    except (ValueError, KeyError, TypeError) as error:
        raise DriverError(
            f"LVM's report does not have the known format: {error}"
        ) from error
