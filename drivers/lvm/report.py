# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LVM's JSON reports as named values, in bytes.

The form is that of ``--reportformat json --units b --nosuffix``: one object
per row, every value a string (lvmreport(7)). Tested with lvm2 2.03.16.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from drivers.errors import DriverError

_Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """One row of vgs."""

    size: int
    free: int


@dataclass(frozen=True, slots=True)
class Pool:
    """One thin pool. ``zeroes``: a new chunk is cleared before it is handed out."""

    size: int
    data_percent: float
    metadata_percent: float
    zeroes: bool


@dataclass(frozen=True, slots=True)
class LogicalVolume:
    """One row of lvs; ``pool`` is empty for a thick volume."""

    name: str
    size: int
    pool: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of extents of one logical volume, as ``/dev/sda:0-24``."""

    size: int
    extents: str


def volume_groups(text: str) -> tuple[VolumeGroup, ...]:
    """Read a report of vgs."""
    return tuple(
        VolumeGroup(int(row["vg_size"]), int(row["vg_free"]))
        for row in _rows(text, "vg")
    )


def logical_volumes(text: str) -> tuple[LogicalVolume, ...]:
    """Read a report of lvs with names, sizes and pools."""
    return tuple(
        LogicalVolume(row["lv_name"], int(row["lv_size"]), row["pool_lv"])
        for row in _rows(text, "lv")
    )


def pools(text: str) -> tuple[Pool, ...]:
    """Read a report of lvs on thin pools; other logical volumes are left out."""
    return tuple(
        Pool(
            int(row["lv_size"]),
            float(row["data_percent"] or 0),
            float(row["metadata_percent"] or 0),
            row["zero"] != "",
        )
        for row in _rows(text, "lv")
        if row["segtype"] == "thin-pool"
    )


def segments(text: str) -> tuple[Segment, ...]:
    """Read a report of lvs --segments."""
    return tuple(
        Segment(int(row["seg_size"]), row["seg_pe_ranges"])
        for row in _rows(text, "seg")
    )


def _rows(text: str, kind: str) -> Iterator[_Row]:
    try:
        report = json.loads(text)["report"]
        yield from (row for part in report for row in part[kind])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DriverError(f"LVM's report is not of the known form: {error}") from error
