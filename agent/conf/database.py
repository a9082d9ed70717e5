# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the database ([database])."""

from oslo_config import cfg

OPTIONS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:///$state_path/lunshare.sqlite",
        help="SQLAlchemy URL of the database. The default needs no server.",
    ),
]
