# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The process that sends reports of backends to the scheduler of a Cinder.

It is a process of its own because oslo.messaging needs oslo.service, which needs
eventlet; the daemon loads neither. Each line of standard input is a report,
``{"host", "capabilities", "timestamp"}``. The process ends when its input ends.
lunshare.agent.reporter starts it. It may be killed at any time.
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
# They log each attempt to connect. Here the loss and the return of the connection
# are logged once each.
_NOISY = ("oslo.messaging", "oslo_messaging", "amqp", "kombu")


class CapabilitiesEndpoint:
    """A scheduler that has just started requests reports of all volume services."""

    target: ClassVar[Any] = oslo_messaging.Target(version="3.999")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def publish_service_capabilities(self, ctxt: object) -> None:
        """Send the reports again. There is no result, since the call is a cast."""
        self._outbox.resend()


def main(argv: Sequence[str] | None = None) -> int:
    """Run until standard input ends; return the exit code."""
    # ^C of a terminal is for the daemon, which then ends this process.
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
    # Do not wait for threads that wait for the message bus.
    os._exit(0)


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Read the files of the daemon into the global options of this process.

    oslo.messaging 18.3.1 registers the options of its tracing only there, and reads
    them from the options that it is given.
    """
    conf = cfg.CONF  # noqa: TID251 - see above
    opts.register(conf)
    log.register_options(conf)
    conf(args=list(argv), project="lunshare", prog="lunshare-reports")
    log.setup(conf, "lunshare")
    for name in _NOISY:
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
    return oslo_messaging.get_rpc_server(
        transport, target, [CapabilitiesEndpoint(outbox)]
    )


if __name__ == "__main__":
    sys.exit(main())
