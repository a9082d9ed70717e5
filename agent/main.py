# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The life of the daemon, in reading order."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_log import log

from lunshare.agent import listener, logs, systemd
from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.conf import opts
from lunshare.agent.errors import StartupError

LOG = log.getLogger(__name__)

_GLANCE = 0.05  # seconds between two looks at a signal
_STEP = 1.0  # seconds between two words to systemd in a long reconcile


def main(argv: Sequence[str] | None = None) -> int:
    """Run lunshared; the answer is the exit code."""
    code = 0
    try:
        conf = configure(sys.argv[1:] if argv is None else argv)
        with sole_owner(conf.state_path):
            run(conf)
    except (StartupError, cfg.Error) as error:
        print(f"lunshared: {error}", file=sys.stderr)
        systemd.notify(f"STATUS={error}")
        code = 1
    if _left_over():
        # Python would wait for threads that wait for storage. What they do is in
        # the database as an intent, as it is when the process is killed.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Read options and files, and set up logging to stderr."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    log.register_options(conf)
    conf(args=list(argv), project="lunshare", prog="lunshared")
    logs.setup(conf)
    opts.check(conf)
    return conf


@contextmanager
def sole_owner(state_path: str) -> Iterator[None]:
    """Hold the state path against a second daemon.

    :raises StartupError: it cannot be written, or another daemon has it.
    """
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


def run(conf: cfg.ConfigOpts) -> None:
    """From the first reconcile to the last request."""
    address = listener.parse(conf.listen, conf.auth_strategy)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    assembly = assemble(conf)
    try:
        late = not first_reconcile(assembly, conf.start_wait, stop)
        serve(conf, assembly, address, stop, late=late)
    finally:
        # What is exported stays exported: hosts go on while we are away.
        if not assembly.close(conf.stop_wait):
            LOG.warning(
                "[main] STOP left=steps under way after %s s; the next start goes on"
                " with them",
                conf.stop_wait,
            )


def first_reconcile(assembly: Assembly, wait: float, stop: threading.Event) -> bool:
    """Make the node equal to the database before anyone is listened to.

    Whether that was done within ``wait`` seconds; what takes longer goes on beside
    the requests. A target is what it was before the start until its turn comes.

    :raises StartupError: no backend works.
    """
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        moment = time.monotonic()
        if done == total or moment - last > _STEP:
            last = moment
            systemd.notify(
                f"STATUS=reconciling {done}/{total}", "EXTEND_TIMEOUT_USEC=60000000"
            )

    work = Aside("first reconcile", lambda: assembly.reconcile.run(progress, wait))
    done = work.wait(wait, stop)
    down = [b.problem for b in assembly.backends.values() if b.down]
    if len(down) == len(assembly.backends):
        raise StartupError(f"no backend works: {'; '.join(map(str, down))}")
    if not done:
        LOG.warning("[main] START reconcile is not done after %s s; it goes on", wait)
    return done


class Aside:
    """Work in a thread that nobody has to wait for."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        """Begin."""
        self._work = work
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Whether it was done before so many seconds, and before ``stop``.

        Raises what the work has raised.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop.is_set():
            if self._done.wait(min(_GLANCE, seconds)):
                if self._error is not None:
                    raise self._error
                return True
        return False

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error
        self._done.set()


def serve(
    conf: cfg.ConfigOpts,
    assembly: Assembly,
    address: listener.Address,
    stop: threading.Event,
    late: bool,
) -> None:
    """Answer requests until ``stop``, then let those under way end."""
    names = ",".join(assembly.backends)
    server = listener.serve(
        assembly.app, address, conf.osapi_threads, conf.osapi_max_request_body_size
    )
    assembly.start(reconcile_again=late)
    thread = threading.Thread(target=server.serve, name="listener", daemon=True)
    thread.start()
    try:
        LOG.info("[main] READY listen=%s backends=%s", address, names)
        systemd.notify("READY=1", "STATUS=serving")
        stop.wait()
        systemd.notify("STOPPING=1")
    finally:
        server.stop(conf.stop_wait)
        thread.join()


def _left_over() -> bool:
    """Whether there are threads that Python would wait for."""
    others = threading.enumerate()
    return any(t for t in others if t is not threading.main_thread())


if __name__ == "__main__":
    sys.exit(main())
