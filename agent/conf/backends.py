# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options that every backend section has, beside those of its two drivers."""

from oslo_config import cfg

from drivers.pool import POOL_OPTIONS

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
    *POOL_OPTIONS,
]
