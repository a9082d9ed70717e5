# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the HTTP API ([DEFAULT], as Cinder has them)."""

from oslo_config import cfg

OPTIONS = [
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
