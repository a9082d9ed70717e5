# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a backend section with ``volume_driver = lvm``."""

from __future__ import annotations

from oslo_config import cfg

OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "volume_group",
        default="lunshare",
        regex=r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]*",
        help="The LVM volume group that holds this backend's volumes. Logical"
        " volumes in it that are not named volume-<uuid>, _snapshot-<uuid> or"
        " deleted-<uuid>.<bytes> are not touched. Only one lunshare may work with the"
        " group: a tag on the group names its node. Name the group in"
        " /etc/lunshare/helper.conf too.",
    ),
    cfg.StrOpt(
        "lvm_type",
        default="thin",
        choices=[
            ("thin", "In a thin pool: space is used as it is written"),
            ("default", "Thick: all space is allocated, and wiped, at creation"),
        ],
        help="How volumes are allocated. Existing volumes are not converted: migrate"
        " them to another backend before you change it.",
    ),
    cfg.StrOpt(
        "lvm_pool",
        help="The thin pool in the group; <volume_group>-pool if not set. Used only"
        " with lvm_type = thin.",
    ),
    cfg.FloatOpt(
        "lvm_pool_data_limit",
        default=95.0,
        min=1.0,
        max=99.0,
        help="A thin pool whose data is this full, in percent, refuses new volumes,"
        " snapshots and growth. Leave some space: hosts still write to the volumes"
        " that exist.",
    ),
    cfg.FloatOpt(
        "lvm_pool_metadata_limit",
        default=90.0,
        min=1.0,
        max=99.0,
        help="The same for the pool's metadata, in percent. A pool whose metadata"
        " is full goes read-only and has to be repaired offline.",
    ),
    cfg.IntOpt(
        "lvm_snapshot_reserve",
        default=100,
        min=1,
        max=100,
        help="Space for a snapshot of a thick volume, in percent of the volume. It"
        " holds the bytes that hosts overwrite. If it is full, the snapshot is lost."
        " At 100 it cannot become full. Used only with lvm_type = default.",
    ),
    cfg.FloatOpt(
        "command_timeout",
        default=60.0,
        min=1.0,
        help="Seconds one LVM command may take before the request fails. Raise it on"
        " slow disks. For wipes and copies see progress_timeout.",
    ),
]
