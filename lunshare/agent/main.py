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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_log import log

from lunshare.agent import (
    listen_addresses,
    logs,
    metrics_listener,
    request_scope,
    show_config,
)
from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.conf import opts
from lunshare.agent.http import listener, tls
from lunshare.agent.model.errors import StartupError
from lunshare.drivers.sd_notify import notify
from lunshare.drivers.stop_signals import StopSignals

LOG = log.getLogger(__name__)

_SIGNAL_CHECK = 0.05  # seconds between two checks for a signal
_PROGRESS = 1.0  # seconds between two reports to systemd in a long reconcile


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
    if _threads_left():
        # Python would wait for threads that wait for storage. The database has
        # what they do as an intent, as when the process is killed.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Read options and configuration files, and set up logging."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    logs.register(conf)
    conf(args=list(argv), project="lunshare", prog="lunshared")
    if conf.show_config:
        logging.basicConfig(level=logging.WARNING)  # no log file, and not stdout
    else:
        logs.setup(conf)
    opts.check(conf)
    return conf


@contextmanager
def sole_owner(state_path: str) -> Iterator[None]:
    """Lock the state path, so that a second daemon cannot use it.

    :raises StartupError: it cannot be written, or another daemon uses it; or this is
        root, and it belongs to another user.
    """
    _refuse_root(state_path)
    try:
        os.makedirs(state_path, mode=0o750, exist_ok=True)
        probe = os.path.join(state_path, ".writable")
        with open(probe, "w", encoding="ascii"):
            os.unlink(probe)
    except OSError as error:
        raise StartupError(
            f"state_path {state_path} cannot be written ({error.strerror}): create it"
            " for the daemon's user, or give another with --state-path"
        ) from error
    try:
        with lockutils.lock(
            "lunshared", external=True, lock_path=state_path, blocking=False
        ):
            yield
    except lockutils.AcquireLockFailedException:
        raise StartupError(
            f"another lunshared already uses state_path {state_path}: stop it, or"
            " give this one another with --state-path"
        ) from None


def _refuse_root(state_path: str) -> None:
    """Root would follow a link that the owner of the directory has created in it."""
    with suppress(OSError):  # sole_owner reports it
        if os.geteuid() or not (owner := os.stat(state_path).st_uid):
            return
        raise StartupError(
            f"state_path {state_path} belongs to uid {owner}, and this is root:"
            " systemctl start lunshared, or run it as that user (runuser -u)"
        )


def run(conf: cfg.ConfigOpts) -> None:
    """Run from the first reconcile to the last request."""
    addresses = listen_addresses.configured(conf)
    certificates = {each: tls.certificates(conf, each) for each in addresses}
    of_metrics = metrics_listener.configured(conf)
    stop = StopSignals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is what to reload
    assembly = assemble(conf)
    server = metrics = None
    try:
        late = not first_reconcile(assembly, conf.start_wait, stop)
        server = listener.serve(
            assembly.app,
            addresses,
            conf.osapi_threads,
            conf.osapi_max_request_body_size,
            certificates.get,
        )
        metrics = metrics_listener.create(conf, of_metrics, assembly.services.metrics)
        serve(assembly, [server, *([metrics] if metrics else [])], stop, late)
    finally:
        if metrics is not None:
            metrics.stop(0)
        close(assembly, server, conf.stop_wait)


def first_reconcile(assembly: Assembly, wait: float, stop: StopSignals) -> bool:
    """Apply the database to the node before the first request is served.

    Return whether that was done within ``wait`` seconds. What takes longer
    continues while requests are served. Until its turn comes, a target stays as
    it was before the start.

    :raises StartupError: no backend works.
    """
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        moment = time.monotonic()
        if done == total or moment - last > _PROGRESS:
            last = moment
            notify(f"STATUS=reconciling {done}/{total}", "EXTEND_TIMEOUT_USEC=60000000")

    work = BackgroundTask(
        "first reconcile", lambda: assembly.reconcile.run(progress, wait)
    )
    done = work.wait(wait, stop)
    down = [b.problem for b in assembly.backends.values() if b.down]
    if len(down) == len(assembly.backends):
        raise StartupError(f"no backend works: {'; '.join(map(str, down))}")
    if not done:
        LOG.warning("[main] START reconcile is not done after %s s; it continues", wait)
    return done


class BackgroundTask:
    """Work in a thread of its own, for which the caller may wait."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        """Start."""
        self._work = work
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float, stop: StopSignals) -> bool:
        """Return whether it was done within ``seconds``, and before ``stop``.

        It raises what the work has raised.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop.is_set():
            if self._done.wait(min(_SIGNAL_CHECK, seconds)):
                if self._error is not None:
                    raise self._error
                return True
        return False

    def _run(self) -> None:
        try:
            with request_scope.scope():
                self._work()
        except Exception as error:
            self._error = error
        self._done.set()


def serve(
    assembly: Assembly,
    servers: Sequence[listener.Server],
    stop: StopSignals,
    late: bool,
) -> None:
    """Serve requests until ``stop``. ``late``: the first reconcile is not done."""
    assembly.start(reconcile_again=late)
    for server in servers:
        server.start()
    signal.signal(signal.SIGHUP, lambda *_: _reload(servers))
    names = ",".join(assembly.backends)
    addresses = ",".join(each.addresses for each in servers)
    LOG.info("[main] READY listen=%s backends=%s", addresses, names)
    notify("READY=1", "STATUS=serving")
    stop.wait()
    notify("STOPPING=1")


def _reload(servers: Sequence[listener.Server]) -> None:
    for server in servers:
        server.reload()


def close(assembly: Assembly, server: listener.Server | None, seconds: float) -> None:
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
    return any(t for t in others if t is not threading.main_thread())


if __name__ == "__main__":
    sys.exit(main())
