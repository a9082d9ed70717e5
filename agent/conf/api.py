# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the HTTP API ([DEFAULT], as Cinder has them)."""

from oslo_config import cfg

OPTIONS = [
    cfg.StrOpt(
        "auth_strategy",
        default="noauth",
        choices=[("noauth", "everyone is admin; only on loopback or a unix socket")],
        help="How callers prove who they are.",
    ),
    cfg.StrOpt(
        "public_endpoint",
        help="Scheme and host that replace the listener's own in links, such as"
        " https://storage.example.com:8776.",
    ),
    cfg.IntOpt(
        "osapi_max_limit",
        default=1000,
        min=1,
        help="The most items of one page of a list.",
    ),
    cfg.IntOpt(
        "osapi_max_request_body_size",
        default=114688,
        min=1024,
        help="The largest request body in bytes; a larger one is answered 413.",
    ),
    cfg.IntOpt(
        "osapi_threads",
        default=32,
        min=2,
        help="Requests worked on at once. A third of them may wait for one backend"
        " at the same time; the next one waits a moment, and is answered 503 where"
        " the backend hangs, which so never takes the API with it.",
    ),
]
