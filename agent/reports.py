# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The process that tells Cinder's scheduler of our backends; the daemon feeds it.

It is a process of its own because oslo.messaging brings oslo.service, and that
brings eventlet: neither gets into the daemon. Each line of standard input is a
report, ``{"host", "capabilities", "timestamp"}``; at its end the process ends.
It is started by lunshare.agent.reporter, and may be killed at any moment.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import oslo_messaging
from oslo_config import cfg
from oslo_log import log

from lunshare.agent.conf import opts
from lunshare.agent.outbox import Outbox, Report, Sender

# Since 3.3 a report carries its time and its cluster; cinder/scheduler/rpcapi.py.
_VERSION = "3.3"
# They log each attempt to connect; we say once that it is lost, and once that
# it is back.
_TALKATIVE = ("oslo.messaging", "oslo_messaging", "amqp", "kombu")


class Asked:
    """A scheduler that has just started asks all volume services for reports."""

    target: ClassVar[Any] = oslo_messaging.Target(version="3.999")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def publish_service_capabilities(self, ctxt: object) -> None:
        """Answer with reports, not with a result: it is a cast to everyone."""
        self._outbox.again()


def main(argv: Sequence[str] | None = None) -> int:
    """Run until standard input ends; the answer is the exit code."""
    # A terminal's ^C is for the daemon, whose end is ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outbox = Outbox()
    try:
        conf = configure(sys.argv[1:] if argv is None else argv)
        transport = oslo_messaging.get_rpc_transport(
            conf, url=conf.scheduler.transport_url
        )
    except (cfg.Error, oslo_messaging.MessagingException) as error:
        print(f"lunshare reports: {error}", file=sys.stderr)
        return 1
    sender = Sender(outbox, _caster(transport))
    for work in (sender.run, _server(transport, conf.host, outbox).start):
        threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        outbox.put(json.loads(line))
    # Whoever waits for the bus is not waited for.
    os._exit(0)


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Read the daemon's own files.

    Into the global options of this process: oslo.messaging 18.3.1 reads options of
    its tracing from the ones it is given, and registers them there only.
    """
    conf = cfg.CONF  # noqa: TID251 - see above
    opts.register(conf)
    log.register_options(conf)
    conf(args=list(argv), project="lunshare", prog="lunshare-reports")
    log.setup(conf, "lunshare")
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return conf


def _caster(transport: Any) -> Callable[[Report], None]:
    target = oslo_messaging.Target(topic="cinder-scheduler", version="3.0")
    client = oslo_messaging.get_rpc_client(transport, target, retry=0)
    everyone = client.prepare(fanout=True, version=_VERSION)

    def cast(report: Report) -> None:
        everyone.cast(
            {"is_admin": True},
            "update_service_capabilities",
            service_name="volume",
            cluster_name=None,
            **report,
        )

    return cast


def _server(transport: Any, host: str, outbox: Outbox) -> Any:
    target = oslo_messaging.Target(topic="cinder-volume", server=host)
    return oslo_messaging.get_rpc_server(transport, target, [Asked(outbox)])


if __name__ == "__main__":
    sys.exit(main())
