# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LVM's JSON reports as named values, in bytes.

The form is that of ``--reportformat json --units b --nosuffix``: one object
per row, every value a string (lvmreport(7)). Tested with lvm2 2.03.16.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lunshare.drivers.errors import DriverError

_HEALTH = {"out_of_data_space": "out_of_data", "ro": "metadata_read_only"}

_Row = dict[str, str]
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """One row of vgs; ``extent`` is the unit of allocation.

    ``device`` is a disk that keeps the group's metadata; empty if LVM knows none.
    """

    size: int
    free: int
    extent: int
    tags: tuple[str, ...]
    device: str


@dataclass(frozen=True, slots=True)
class Pool:
    """One thin pool. ``zeroes``: a new chunk is cleared before it is handed out.

    ``health`` is empty while all is well, or a word such as ``out_of_data``.
    """

    size: int
    data_percent: float
    metadata_percent: float
    zeroes: bool
    health: str


@dataclass(frozen=True, slots=True)
class Levels:
    """How full a thin pool is, and its health, as in ``Pool``."""

    data_percent: float
    metadata_percent: float
    health: str


@dataclass(frozen=True, slots=True)
class LogicalVolume:
    """One row of lvs; ``pool`` is empty for a thick volume."""

    name: str
    size: int
    pool: str


@dataclass(frozen=True, slots=True)
class Looked:
    """A logical volume looked at more closely, which asks the kernel too.

    ``origin`` is whose snapshot it is, ``layout`` and ``roles`` are LVM's words,
    ``lost`` says that a thick snapshot ran over and holds nothing any more,
    ``merging`` that its origin is being given a snapshot's bytes back.
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
    """A run of extents of one logical volume, as ``/dev/sda:0-24``."""

    size: int
    extents: str


def volume_group(text: str) -> VolumeGroup:
    """Read a report of vgs on one group, which has a row for each of its disks."""
    rows = _read(text, "vg", _group)
    return next((row for row in rows if row.device), rows[0])


def levels(text: str) -> Levels | None:
    """Read the kernel's status of a thin pool.

    Its form: Documentation/admin-guide/device-mapper/thin-provisioning.rst. The
    words for its health are LVM's (lvs(8), lv_health_status).
    """
    words = text.split()[3:]
    if not words:
        return None
    if words[0] in ("Fail", "Error"):
        return Levels(100, 100, "failed")
    try:
        metadata, data = (_percent(word) for word in words[1:3])
        return Levels(data, metadata, _HEALTH.get(words[4], ""))
    except (ValueError, IndexError) as error:
        raise DriverError(
            f"a pool's status is not of the known form: {text}"
        ) from error


def logical_volumes(text: str) -> tuple[LogicalVolume, ...]:
    """Read a report of lvs with names, sizes and pools."""
    return _read(text, "lv", _volume)


def looked(text: str) -> tuple[Looked, ...]:
    """Read a report of lvs with what ``Looked`` has."""
    return _read(text, "lv", _looked)


def pools(text: str) -> tuple[Pool, ...]:
    """Read a report of lvs on thin pools; other logical volumes are left out."""
    return tuple(pool for pool in _read(text, "lv", _pool) if pool)


def segments(text: str) -> tuple[Segment, ...]:
    """Read a report of lvs --segments."""
    return _read(text, "seg", _segment)


def _group(row: _Row) -> VolumeGroup:
    size, free, extent = (
        int(row[key]) for key in ("vg_size", "vg_free", "vg_extent_size")
    )
    keeps = int(row["pv_mda_used_count"] or 0)
    return VolumeGroup(
        size,
        free,
        extent,
        _words(row["vg_tags"]),
        row["pv_name"] if keeps else "",
    )


def _volume(row: _Row) -> LogicalVolume:
    return LogicalVolume(row["lv_name"], int(row["lv_size"]), row["pool_lv"])


def _looked(row: _Row) -> Looked:
    return Looked(
        name=row["lv_name"],
        size=int(row["lv_size"]),
        pool=row["pool_lv"],
        origin=row["origin"],
        tags=_words(row["lv_tags"]),
        layout=_words(row["lv_layout"]),
        roles=_words(row["lv_role"]),
        writable=row["lv_permissions"] == "writeable",
        # These are "unknown" while it is not active.
        open=row["lv_device_open"] == "open",
        lost=row["lv_snapshot_invalid"] == "snapshot invalid",
        merging=row["lv_merging"] == "merging",
    )


def _pool(row: _Row) -> Pool | None:
    if row["segtype"] != "thin-pool":
        return None
    # The levels are empty while the pool is not active.
    levels = float(row["data_percent"] or 0), float(row["metadata_percent"] or 0)
    zeroes, health = row["zero"] != "", row["lv_health_status"]
    return Pool(int(row["lv_size"]), *levels, zeroes, health)


def _segment(row: _Row) -> Segment:
    return Segment(int(row["seg_size"]), row["seg_pe_ranges"])


def _percent(text: str) -> float:
    """``used/total``, to two digits as LVM tells it."""
    used, total = (int(each) for each in text.split("/"))
    return round(100 * used / total, 2)


def _words(text: str) -> tuple[str, ...]:
    """A list in a report, which is parted by commas."""
    return tuple(filter(None, text.split(",")))


def _read(text: str, kind: str, build: Callable[[_Row], _Made]) -> tuple[_Made, ...]:
    try:
        parts = json.loads(text)["report"]
        return tuple(build(row) for part in parts for row in part[kind])
    except (ValueError, KeyError, TypeError) as error:
        raise DriverError(f"LVM's report is not of the known form: {error}") from error
