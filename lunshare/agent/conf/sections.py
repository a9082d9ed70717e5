# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the sections that every node has, and of every backend section."""

from collections.abc import Mapping, Sequence

from oslo_config import cfg

from lunshare.drivers import wiping

_DATABASE = [
    cfg.IntOpt(
        "deleted_rows_ttl",
        default=604800,
        min=0,
        help="Seconds for which the rows of deleted volumes, snapshots and attachments"
        " stay in the database, to show which host had which volume and when; of more"
        " than 20,000 of a kind the oldest are removed before. Lower it"
        " on a node that creates and deletes thousands of volumes an hour.",
    ),
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:///$state_path/lunshare.sqlite",
        help="SQLAlchemy URL of the database, which must be SQLite.",
    ),
]

#: The connection to the root helper.
_HELPER = [
    cfg.StrOpt(
        "socket",
        default="/run/lunshare/helper.sock",
        help="Unix socket of the root helper, created by lunshare-helper.socket.",
    )
]

#: Placement.
_SCHEDULER = [
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

#: The options of a section, by its name.
SECTIONS: Mapping[str, Sequence[cfg.Opt]] = {
    "database": _DATABASE,
    "helper": _HELPER,
    "scheduler": _SCHEDULER,
}

#: Of every backend section. Its two drivers add their own.
BACKEND = [
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
