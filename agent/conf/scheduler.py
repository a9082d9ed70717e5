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
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="The message bus of a Cinder whose scheduler is told of each backend,"
        " such as rabbit://USER:PASSWORD@HOST:5672/. It needs lunshare[scheduler]."
        " Groups of oslo.messaging, such as [oslo_messaging_rabbit], are read as"
        " in Cinder. Without it nothing is told and nothing of it is loaded.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=60,
        min=1,
        help="Seconds between two reports to that scheduler. It hears of a backend"
        " also when it starts and asks.",
    ),
]
