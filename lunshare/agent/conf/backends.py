# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of every backend section. Its two drivers add their own."""

from oslo_config import cfg

from lunshare.drivers import wiping

OPTIONS = [
    cfg.StrOpt(
        "volume_driver",
        help="The driver that creates volumes: an entry point of lunshare.drivers.",
    ),
    cfg.StrOpt(
        "target_driver",
        default="lio",
        help="The driver that exports volumes: an entry point of lunshare.targets.",
    ),
    cfg.StrOpt(
        "volume_backend_name",
        sample_default="the section's name",
        help="A volume type selects the backend by this value in its extra spec"
        " volume_backend_name.",
    ),
    cfg.IntOpt(
        "reserved_percentage",
        default=0,
        min=0,
        max=100,
        help="Per cent of the pool that schedulers must leave free.",
    ),
    cfg.FloatOpt(
        "max_over_subscription_ratio",
        default=20.0,
        min=1.0,
        help="The size of all thin volumes together may be this many times the size of"
        " the pool. 1.0 allows no more than the pool has. Thick backends ignore it.",
    ),
    *wiping.OPTIONS,
]
