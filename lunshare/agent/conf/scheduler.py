# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of placement ([scheduler])."""

from oslo_config import cfg

OPTIONS = [
    cfg.FloatOpt(
        "capacity_weight_multiplier",
        default=1.0,
        help="Weight of the virtual free capacity in the choice of a pool. A negative"
        " value fills one pool before the next.",
    ),
    cfg.FloatOpt(
        "allocated_capacity_weight_multiplier",
        default=0.0,
        help="Weight of the allocated capacity in the choice of a pool. -1.0 spreads"
        " volumes over pools of different sizes.",
    ),
]
