# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the door to the root helper ([helper])."""

from oslo_config import cfg

OPTIONS = [
    cfg.StrOpt(
        "socket",
        default="/run/lunshare/helper.sock",
        help="The root helper's unix socket; lunshare-helper.socket makes it.",
    ),
]
