# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options that every backend section has, beside those of its two drivers."""

from oslo_config import cfg

OPTIONS = [
    cfg.StrOpt(
        "volume_driver",
        help="The driver that makes disks: an entry point of lunshare.drivers.",
    ),
    cfg.StrOpt(
        "target_driver",
        default="lio",
        help="The driver that exports them: an entry point of lunshare.targets.",
    ),
    cfg.StrOpt(
        "volume_backend_name",
        sample_default="the section's name",
        help="What a type's extra spec volume_backend_name is matched with.",
    ),
    cfg.IntOpt(
        "reserved_percentage",
        default=0,
        min=0,
        max=100,
        help="Per cent of the pool that schedulers are told to leave free.",
    ),
    cfg.FloatOpt(
        "max_over_subscription_ratio",
        default=20.0,
        min=1.0,
        help="How many times the pool's size may be promised to thin volumes."
        " 1.0 promises no more than there is. Thick backends do not read it.",
    ),
    cfg.IntOpt(
        "wipe_rate",
        default=100,
        min=0,
        help="MiB a second that the wiping of deleted volumes takes from the disks"
        " at most; 0 is as fast as they can. Lower it where hosts feel a wipe; raise"
        " it where room comes free too slowly.",
    ),
    cfg.IntOpt(
        "wipe_step",
        default=64,
        min=1,
        help="MiB that are wiped at once. A stop of the daemon waits for one step.",
    ),
]
