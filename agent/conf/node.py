# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the node as a whole ([DEFAULT])."""

import socket

from oslo_config import cfg

CLI_OPTIONS = [
    cfg.StrOpt(
        "state-path",
        default="/var/lib/lunshare",
        help="Directory of what must survive: the database. The daemon's user owns"
        " it. Two daemons on one state path are refused.",
    ),
    cfg.StrOpt(
        "listen",
        default="127.0.0.1:8776",
        help="Where the API listens: HOST:PORT, [IPV6]:PORT, or unix:PATH.",
    ),
]

#: Of the command line alone: no file may set it.
COMMANDS = [
    cfg.BoolOpt(
        "show-config",
        default=False,
        help="Print every option with its value and where the value is from, then"
        " end. Secrets are hidden.",
    ),
]

OPTIONS = [
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="the node's host name",
        help="The name of this node in host@backend#pool. Volumes do not keep it,"
        " so a node may be renamed.",
    ),
    cfg.ListOpt(
        "enabled_backends",
        default=[],
        help="The backends of this node. Each is a section of this file that names"
        " its volume_driver and target_driver. At least one.",
    ),
    cfg.StrOpt(
        "storage_availability_zone",
        default="nova",
        help="The availability zone of this node's volumes.",
    ),
    cfg.StrOpt(
        "default_volume_type",
        help="Name of the type of a volume that asks for none. It must exist when"
        " such a volume is created. Without it such a volume has no type.",
    ),
    cfg.StrOpt(
        "mixed_modes_per_host",
        default="refuse",
        choices=[
            ("refuse", "answer 409 to the second mode"),
            ("widen", "open it read-write and say so in connection_info"),
        ],
        help="One initiator has one ACL, and one ACL one write-protect bit. This"
        " says what happens when an initiator asks for a volume both ro and rw.",
    ),
    cfg.IntOpt(
        "reconcile_interval",
        default=60,
        min=1,
        help="Seconds between two comparisons of the live targets with the"
        " database. What no attachment asks for is closed at each of them.",
    ),
    cfg.IntOpt(
        "backend_stats_polling_interval",
        default=60,
        min=1,
        help="Seconds between two looks at a backend's capacity.",
    ),
    cfg.IntOpt(
        "message_ttl",
        default=2592000,
        min=1,
        help="Seconds for which a user message is kept: why a volume could not be"
        " created. Of more than a thousand the oldest go before that.",
    ),
    cfg.FloatOpt(
        "start_wait",
        default=20.0,
        min=0.1,
        help="Seconds that the start waits for backends to answer, and for the first"
        " comparison of the live targets with the database. What takes longer goes"
        " on while requests are answered; /readyz says so until it is done.",
    ),
    cfg.FloatOpt(
        "stop_wait",
        default=5.0,
        min=0.1,
        help="Seconds that the end waits for requests and steps that are under way."
        " What takes longer is left; the next start goes on with it.",
    ),
    cfg.FloatOpt(
        "volume_lock_timeout",
        default=15.0,
        min=0.1,
        help="Seconds a request waits for another one on the same volume before it"
        " answers 409. Raise it where hundreds of hosts attach at one moment.",
    ),
    cfg.FloatOpt(
        "create_wait",
        default=3.0,
        min=0.0,
        help="Seconds a create request waits for the disk, so that a full or broken"
        " backend is an error in its answer. After that the answer is 202 with"
        " status creating, and a failure shows as status error.",
    ),
]
