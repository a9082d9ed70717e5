# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of placement, and of reports to a Cinder scheduler ([scheduler])."""

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
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="The message bus of a Cinder whose scheduler gets reports of each backend,"
        " such as rabbit://USER:PASSWORD@HOST:5672/. It needs lunshare[scheduler]."
        " Groups of oslo.messaging, such as [oslo_messaging_rabbit], are read as"
        " in Cinder. Without this option no report is sent and no library loaded.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=60,
        min=1,
        help="Seconds between two reports to that scheduler. A scheduler that starts"
        " requests reports, and gets them at once.",
    ),
]
