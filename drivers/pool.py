# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options that every volume driver with a pool has, under Cinder's names.

The drivers do not read them: they are what the agent reports to a scheduler.
"""

from __future__ import annotations

from oslo_config import cfg

POOL_OPTIONS = [
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
]
