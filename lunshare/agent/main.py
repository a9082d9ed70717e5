# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Start, serve and stop the daemon, in reading order."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from oslo_config import cfg
from oslo_log import log

from lunshare.agent import (
    listen_addresses,
    logs,
    metrics_listener,
    show_config,
    state_report,
)
from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.conf import config_errors, opts
from lunshare.agent.first_reconcile import first_reconcile
from lunshare.agent.http import listener, tls
from lunshare.agent.http.sockets import KeptSockets
from lunshare.agent.http.tls import Certificates
from lunshare.agent.listen_addresses import Address
from lunshare.agent.model.errors import StartupError
from lunshare.agent.state_path import sole_owner
from lunshare.drivers.sd_notify import notify
from lunshare.drivers.stop_signals import StopSignals

LOG = log.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run lunshared; return the exit code."""
    code = 0
    try:
        conf = configure(sys.argv[1:] if argv is None else argv)
        if conf.show_config:
            print(show_config.text(conf))
            return code
        with sole_owner(conf.state_path):
            run(conf)
    except (StartupError, cfg.Error) as error:
        print(f"lunshared: {error}", file=sys.stderr)
        notify(f"STATUS={error}")
        code = 1
    _end_threads(code)
    return code


def _end_threads(code: int) -> None:
    """End the process now if threads are left that wait for storage.

    Python would wait for them. The database has what they do as an intent, as when
    the process is killed.
    """
    if not _threads_left():
        return
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Read options and configuration files, and set up logging."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    logs.register(conf)
    with config_errors.readable_files(conf, argv):
        conf(args=list(argv), project="lunshare", prog="lunshared")
    with config_errors.known_references(conf):
        if conf.show_config:
            logging.basicConfig(level=logging.WARNING)  # no log file, and not stdout
        else:
            logs.setup(conf)
        opts.check(conf)
    return conf


def run(conf: cfg.ConfigOpts) -> None:
    """Run from the first reconcile to the last request."""
    with config_errors.known_references(conf):
        _run(conf)


def _run(conf: cfg.ConfigOpts) -> None:
    addresses = listen_addresses.configured(conf)
    certificates = {address: tls.certificates(conf, address) for address in addresses}
    metrics_addresses = metrics_listener.configured(conf)
    sockets = KeptSockets(where.bind for where in [*addresses, *metrics_addresses])
    stop = StopSignals()
    state_report.write_at_signal(conf)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is what to reload
    assembly = assemble(conf)
    server = metrics = None
    try:
        assembly.timers["leases"].start()  # whatever the first reconcile waits for
        is_late = not first_reconcile(assembly, conf.start_wait, stop)
        server = _server(conf, assembly, certificates, sockets)
        page = assembly.metrics
        metrics = metrics_listener.create(conf, metrics_addresses, page, sockets)
        serve(assembly, [server, *([metrics] if metrics else [])], stop, is_late)
    finally:
        if metrics is not None:
            metrics.stop(0)
        close(assembly, server, conf.stop_wait)


def _server(
    conf: cfg.ConfigOpts,
    assembly: Assembly,
    certificates: Mapping[Address, Certificates | None],
    sockets: KeptSockets,
) -> listener.HttpServer:
    return listener.serve(
        assembly.app,
        list(certificates),
        conf.osapi_threads,
        conf.osapi_max_request_body_size,
        certificates.get,
        listen=sockets.listening_socket,
    )


def serve(
    assembly: Assembly,
    servers: Sequence[listener.HttpServer],
    stop: StopSignals,
    late: bool,
) -> None:
    """Serve requests until ``stop``. ``late``: the first reconcile is not done."""
    assembly.start(reconcile_again=late)
    for server in servers:
        server.start()
    signal.signal(signal.SIGHUP, lambda *_: _reload(servers))
    names = ",".join(assembly.backends)
    addresses = ",".join(server.addresses for server in servers)
    LOG.info("[main] READY listen=%s backends=%s", addresses, names)
    notify("READY=1", "STATUS=serving")
    stop.wait()
    notify("STOPPING=1")


def _reload(servers: Sequence[listener.HttpServer]) -> None:
    for server in servers:
        server.reload()


def close(
    assembly: Assembly, server: listener.HttpServer | None, seconds: float
) -> None:
    """Let requests and steps in progress end, all of them within ``seconds``.

    Exports are not changed: hosts continue while the daemon is stopped.
    """
    deadline = time.monotonic() + seconds
    answered = server is None or server.stop(seconds)
    if not assembly.close(deadline - time.monotonic(), answered):
        LOG.warning(
            "[main] STOP left=steps in progress after %s s; the next start continues"
            " with them",
            seconds,
        )


def _threads_left() -> bool:
    """Return whether other threads run, for which Python might wait."""
    others = threading.enumerate()
    return any(thread is not threading.main_thread() for thread in others)


if __name__ == "__main__":
    sys.exit(main())
