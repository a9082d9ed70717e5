# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the database ([database])."""

from oslo_config import cfg

OPTIONS = [
    cfg.IntOpt(
        "deleted_rows_ttl",
        default=604800,
        min=0,
        help="Seconds for which the rows of deleted volumes, snapshots and attachments"
        " stay in the database, to show which host had which volume and when. Lower"
        " it on a node that creates and deletes thousands of volumes an hour.",
    ),
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:///$state_path/lunshare.sqlite",
        help="SQLAlchemy URL of the database, which must be SQLite.",
    ),
]
