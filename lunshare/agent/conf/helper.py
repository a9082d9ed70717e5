# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the connection to the root helper ([helper])."""

from oslo_config import cfg

OPTIONS = [
    cfg.StrOpt(
        "socket",
        default="/run/lunshare/helper.sock",
        help="Unix socket of the root helper, created by lunshare-helper.socket.",
    ),
]
