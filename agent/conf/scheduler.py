# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of choosing a backend, and of telling other schedulers ([scheduler])."""

from oslo_config import cfg

OPTIONS = [
    cfg.FloatOpt(
        "capacity_weight_multiplier",
        default=1.0,
        help="How much room that may still be promised counts in the choice of a"
        " backend. Negative: fill one backend before the next.",
    ),
    cfg.FloatOpt(
        "allocated_capacity_weight_multiplier",
        default=0.0,
        help="How much the GiB that volumes have already count in the choice of a"
        " backend. -1.0 spreads volumes over backends of different sizes.",
    ),
]
