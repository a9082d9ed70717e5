# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the node, its API and its quotas ([DEFAULT]; the latter as in Cinder)."""

import socket

from oslo_config import cfg

from lunshare.agent.model.quota_table import RESOURCES, UNLIMITED, VOLUME_SIZE

CLI_OPTIONS = [
    cfg.StrOpt(
        "state-path",
        default="/var/lib/lunshare",
        help="Directory of the database. The user of the daemon must own it. A second"
        " daemon on the same state path is refused.",
    )
]

#: Of the command line alone: no file may set it.
COMMANDS = [
    cfg.BoolOpt(
        "show-config",
        default=False,
        help="Print every option with its value and where the value is from, then"
        " end. Secrets are hidden.",
    )
]

OPTIONS = [
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="the node's host name",
        help="The name of this node in host@backend#pool. It is not stored with"
        " volumes, so a node may be renamed.",
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
        help="Name of the type of a volume that is created without one. It must exist"
        " then. Without this option such a volume has no type.",
    ),
    cfg.StrOpt(
        "mixed_modes_per_host",
        default="refuse",
        choices=[
            ("refuse", "refuse the second mode with 409"),
            ("widen", "open it read-write, and show that in connection_info"),
        ],
        help="An initiator has one ACL, and an ACL has one write-protect bit. This"
        " option decides what happens when one initiator attaches a volume ro and rw.",
    ),
    cfg.IntOpt(
        "reconcile_interval",
        default=60,
        min=1,
        help="Seconds between two comparisons of the live targets with the"
        " database. Each of them closes access that has no attachment.",
    ),
    cfg.StrOpt(
        "drift",
        default="repair",
        choices=[
            ("repair", "put it right, and first close what lets a host do too much"),
            ("report", "leave it, until somebody runs lunshare verify --repair"),
        ],
        help="What these comparisons do where somebody else has changed a live target."
        " They name it in the log, in /v3/lunshare/health and in a metric. The first"
        " one after a start puts everything right.",
    ),
    cfg.IntOpt(
        "backend_stats_polling_interval",
        default=60,
        min=1,
        help="Seconds between two reads of the capacity of a backend.",
    ),
    cfg.IntOpt(
        "message_ttl",
        default=2592000,
        min=1,
        help="Seconds until a user message is deleted. It shows why a volume could not"
        " be created. The oldest of more than 1,000 are deleted earlier.",
    ),
    cfg.FloatOpt(
        "start_wait",
        default=20.0,
        min=0.1,
        help="Seconds that the start waits for the backends and for the first"
        " comparison of the live targets with the database. What takes longer"
        " continues while requests are served; /readyz reports it until it is done.",
    ),
    cfg.FloatOpt(
        "stop_wait",
        default=5.0,
        min=0.1,
        help="Seconds that a stop waits for requests and steps in progress, together."
        " The next start continues with what takes longer.",
    ),
    cfg.FloatOpt(
        "volume_lock_timeout",
        default=15.0,
        min=0.1,
        help="Seconds that a request waits for another one on the same volume before"
        " it gets 409. Raise it where hundreds of hosts attach at the same time.",
    ),
    cfg.FloatOpt(
        "create_wait",
        default=3.0,
        min=0.0,
        help="Seconds that a create request waits for the disk, so that its answer can"
        " report a full or broken backend. After that the answer is 202 with status"
        " creating, and a failure changes the status to error.",
    ),
]

#: Of the HTTP API.
API_OPTIONS = [
    cfg.StrOpt(
        "public_endpoint",
        help="Scheme and host of the links in answers, such as"
        " https://storage.example.com:8776. Without it the address that the client"
        " used.",
    ),
    cfg.IntOpt(
        "osapi_max_limit",
        default=1000,
        min=1,
        help="The largest number of items on one page of a list.",
    ),
    cfg.IntOpt(
        "osapi_max_request_body_size",
        default=114688,
        min=1024,
        help="The largest request body in bytes. A larger one gets 413.",
    ),
    cfg.IntOpt(
        "osapi_threads",
        default=32,
        min=2,
        help="Threads that work on requests. A third of them may wait for one backend"
        " at the same time. One more waits a moment, and gets 503 if the backend"
        " hangs. So a backend that hangs does not block the API.",
    ),
]

#: The limits of every project.
QUOTA_OPTIONS = [
    *(
        cfg.IntOpt(
            resource.option,
            default=resource.default,
            min=UNLIMITED,
            max=2**31 - 1,
            help=f"{resource.what}, at most; -1 is no limit."
            + (
                ""
                if resource.name == VOLUME_SIZE
                else " PUT /v3/os-quota-class-sets/default overrides it for all"
                " projects, PUT /v3/os-quota-sets/PROJECT for one."
            ),
        )
        for resource in RESOURCES
    ),
    cfg.BoolOpt(
        "no_snapshot_gb_quota",
        default=False,
        help="Whether the GiB of snapshots are left out of quota_gigabytes.",
    ),
]
