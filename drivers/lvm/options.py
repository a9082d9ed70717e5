# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What can be set in the section of a backend on LVM."""

from __future__ import annotations

from oslo_config import cfg

OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "volume_group",
        default="lunshare",
        regex=r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]*",
        help="The LVM volume group that holds this backend's volumes. Logical"
        " volumes in it that are not named volume-<uuid>, _snapshot-<uuid> or"
        " deleted-<uuid>.<bytes> are left alone. One lunshare works with it: the"
        " node is noted among the group's tags. /etc/lunshare/helper.conf has to name"
        " it too.",
    ),
    cfg.StrOpt(
        "lvm_type",
        default="thin",
        choices=[
            ("thin", "In a thin pool: made at once, room is taken as it is written"),
            ("default", "Thick: all room is taken, and wiped, at creation"),
        ],
        help="How volumes lie in the group. Changing it strands the volumes"
        " made before: move them away first.",
    ),
    cfg.StrOpt(
        "lvm_pool",
        help="The thin pool in the group; <volume_group>-pool if not set. Read"
        " with lvm_type = thin only.",
    ),
    cfg.FloatOpt(
        "lvm_pool_data_limit",
        default=95.0,
        min=1.0,
        max=99.0,
        help="From this many percent of its data on, a thin pool takes no new"
        " volume, snapshot or growth. What hosts write to the volumes that are"
        " there still takes room, so leave some.",
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
        help="Room that a snapshot of a thick volume takes, in percent of the"
        " volume. It holds what hosts overwrite; once it is full the snapshot is"
        " lost. At 100 it cannot fill. Read with lvm_type = default only.",
    ),
    cfg.FloatOpt(
        "command_timeout",
        default=60.0,
        min=1.0,
        help="Seconds one LVM command may take before the request fails. Raise it on"
        " slow disks. For wipes and copies see progress_timeout.",
    ),
]
