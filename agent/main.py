# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The life of the daemon, in reading order."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_log import log

from agent import listener, logs, systemd
from agent.assemble import Assembly, assemble
from agent.conf import opts
from agent.errors import StartupError

LOG = log.getLogger(__name__)

_STEP = 1.0  # seconds between two words to systemd in a long reconcile


def main(argv: Sequence[str] | None = None) -> int:
    """Run lunshared; the answer is the exit code."""
    try:
        conf = configure(sys.argv[1:] if argv is None else argv)
        with sole_owner(conf.state_path):
            run(conf)
    except (StartupError, cfg.Error) as error:
        print(f"lunshared: {error}", file=sys.stderr)
        systemd.notify(f"STATUS={error}")
        return 1
    return 0


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
    if conf.single_processor:
        keep_to_one_processor()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    assembly = assemble(conf)
    try:
        first_reconcile(assembly)
        serve(conf, assembly, address, stop)
    finally:
        # What is exported stays exported: hosts go on while we are away.
        assembly.close()


def keep_to_one_processor() -> None:
    """Let this thread, and those it starts, run on one of our processors only.

    Python runs one thread at a time. Where a thread that waits for its turn has a
    processor of its own, each system call of another thread wakes it and hands
    the turn over: 2.0 ms of CPU for one request instead of 0.7 (32 clients that
    show a volume, 2 cores, Linux 6.18, Python 3.11). The last processor, because
    the first gets most interrupts. A processor taken out at run time ends this:
    the kernel then allows all of them again (cpuset_cpus_allowed_fallback).
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def first_reconcile(assembly: Assembly) -> None:
    """Make the node equal to the database before anyone is listened to.

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

    assembly.reconcile.run(progress)
    down = [b.problem for b in assembly.backends.values() if not b.up]
    if len(down) == len(assembly.backends):
        raise StartupError(f"no backend works: {'; '.join(map(str, down))}")


def serve(
    conf: cfg.ConfigOpts,
    assembly: Assembly,
    address: listener.Address,
    stop: threading.Event,
) -> None:
    """Answer requests until ``stop``, then let those under way end."""
    names = ",".join(assembly.backends)
    server = listener.serve(
        assembly.app, address, conf.osapi_threads, conf.osapi_max_request_body_size
    )
    for loop in assembly.loops:
        loop.start()
    thread = threading.Thread(target=server.serve, name="listener", daemon=True)
    thread.start()
    try:
        LOG.info("[main] READY listen=%s backends=%s", address, names)
        systemd.notify("READY=1", "STATUS=serving")
        stop.wait()
        systemd.notify("STOPPING=1")
    finally:
        server.stop()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
