# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The root helper of lunshare: it lets one user call a few verbs, over a socket.

This is its start: the options, the table of verbs, and the socket. lunshare-helper
runs ``main``; lunshare.helper.server answers the requests.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import os
import pwd
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lunshare.drivers import request_ids
from lunshare.drivers.errors import DriverError, Misconfigured
from lunshare.drivers.sd_notify import notify
from lunshare.drivers.stop_signals import StopSignals
from lunshare.helper import config_file, processes, requests
from lunshare.helper.commands import Commands
from lunshare.helper.copying import CopyVerbs
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.firewall.firewall_verbs import FirewallVerbs
from lunshare.helper.lio import backstores, exports_command, target_requests
from lunshare.helper.lio.memory_guard import MemoryGuard
from lunshare.helper.lio.portals import is_portal
from lunshare.helper.lio.target_reads import TargetReads
from lunshare.helper.lio.target_verbs import TargetVerbs
from lunshare.helper.lvm.headers import HeaderVerbs
from lunshare.helper.lvm.pool_status import PoolVerbs
from lunshare.helper.mounts import Mounts, need_served_disk
from lunshare.helper.nfs.share_verbs import ShareVerbs
from lunshare.helper.served import PATH, Served
from lunshare.helper.server import Server, Verb
from lunshare.helper.verbs import ChangeVerb, IsGone

LOG = logging.getLogger(__name__)

# Connections that wait to be accepted; the next one would be refused by the kernel.
_BACKLOG = 1024
_FIRST_PASSED = 3  # sd_listen_fds(3)

Arguments = Mapping[str, Any]

#: Beside the socket, in a directory that only root can change.
_LOCKS = "work"


def main(argv: list[str] | None = None) -> int:
    """Run the helper; or, with the word ``exports``, a command that queries it."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["exports"]:
        return exports_command.main(words[1:])
    options = _options(words)
    _log_to_stderr()
    # An operator who sends it to the daemon for a report may send it here too.
    faulthandler.register(signal.SIGUSR2)
    try:
        account = _user(options.user)
        served = config_file.read(options.config)
        locks = DiskLocks(os.path.join(os.path.dirname(options.socket), _LOCKS))
        programs = options.exec_dirs.split(",")
        commands = Commands(options.filters, programs, served, locks)
        listener = _socket_from_systemd() or _listen(options.socket, account.pw_gid)
    except DriverError as error:
        LOG.error("%s", error)
        return 1
    guard = memory_guard(served)
    table = verbs(served, commands, Mounts(), locks, guard)
    server = Server(listener, table, {0, account.pw_uid})
    stop = StopSignals()
    guard.start()
    LOG.info("serving %s with %d filters", options.user, len(commands))
    notify("READY=1")
    server.serve(stop)
    notify("STOPPING=1")
    return 0


def verbs(
    served: Served,
    commands: Commands,
    mounts: Mounts,
    disk_locks: DiskLocks | None = None,
    guard: MemoryGuard | None = None,
) -> dict[str, Verb]:
    """Return all verbs of the helper by name; each checks its arguments.

    docs/border.md has a line for each: what it can touch, and which test attacks it.
    With ``disk_locks`` verbs on bytes wait for the work of an earlier helper process.
    """
    headers, pools = HeaderVerbs(served), PoolVerbs(served)
    exported, guard = backstores.is_exported, guard or memory_guard(served)
    return {
        "run": ChangeVerb(_runner(commands)),
        "lvm.commit": headers.commit,
        "lvm.pool": pools.status,
        "lvm.mapped": pools.mapped,
        "node.processes": partial(processes.usage, guard.figures),
        **_target_verbs(guard.verbs, guard.reads, served, mounts),
        **FirewallVerbs(is_portal).verbs(),
        **CopyVerbs(served, exported, mounts, disk_locks).verbs(),
        **ShareVerbs(mounts, served, exported, disk_locks).verbs(),
    }


def _runner(commands: Commands) -> Callable[..., str]:
    def run(arguments: Arguments, seconds: float, is_gone: IsGone) -> str:
        return commands.run(requests.argv(arguments), seconds, is_gone)

    return run


def memory_guard(served: Served) -> MemoryGuard:
    """Return the guard, not started, with the verbs of the target that it uses."""
    names = served.prefix, served.serves_group if served.takeover else None
    return MemoryGuard(TargetVerbs(*names), TargetReads(*names))


def _target_verbs(
    lio: TargetVerbs, reads: TargetReads, served: Served, mounts: Mounts
) -> dict[str, Verb]:
    def check(arguments: Arguments, _: float) -> list[str]:
        return lio.check(target_requests.prefix(arguments))

    def apply(arguments: Arguments, seconds: float, is_gone: IsGone) -> list[str]:
        request = target_requests.apply(arguments)
        if request.export.disk is not None:
            need_served_disk(request.export.disk, served, mounts)
        return lio.apply(request, seconds, is_gone)

    def compare(arguments: Arguments, seconds: float) -> list[dict[str, Any]]:
        request = target_requests.apply(arguments)
        if request.export.disk is not None:
            need_served_disk(request.export.disk, served, mounts)
        return reads.compare(request, seconds)

    def remove(arguments: Arguments, seconds: float, is_gone: IsGone) -> list[str]:
        return lio.remove(target_requests.volume_id(arguments), seconds, is_gone)

    def observe(arguments: Arguments, seconds: float) -> list[dict[str, Any]]:
        requests.nothing(arguments)
        return reads.observe(seconds)

    def live(arguments: Arguments, seconds: float) -> dict[str, Any] | None:
        return reads.live(target_requests.volume_id(arguments), seconds)

    def host(arguments: Arguments, seconds: float) -> dict[str, Any] | None:
        return reads.host(*target_requests.host(arguments), seconds)

    def registrations(arguments: Arguments, seconds: float) -> list[dict[str, str]]:
        return reads.registrations(target_requests.volume_id(arguments), seconds)

    return {
        "lio.check": check,
        "lio.apply": ChangeVerb(apply),
        "lio.remove": ChangeVerb(remove),
        "lio.compare": compare,
        "lio.observe": observe,
        "lio.live": live,
        "lio.host": host,
        "lio.registrations": registrations,
    }


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(request_ids.add)
    form = "%(levelname)s [%(request_id)s] %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[handler])


def _socket_from_systemd() -> socket.socket | None:
    """Return the listening socket that systemd passed to this process, or None."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    return socket.socket(fileno=_FIRST_PASSED)


def _listen(path: str, group: int) -> socket.socket:
    """Create the socket; only root and ``group`` may connect to it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o117)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        if os.geteuid() == 0:
            os.chown(path, 0, group)
    except OSError as error:
        raise Misconfigured(
            f"socket {path}: {error.strerror}", "create its directory, or give --socket"
        ) from None
    finally:
        os.umask(old)
    listener.listen(_BACKLOG)
    return listener


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Misconfigured(
            f"there is no user {name}", "create it (systemd-sysusers), or give --user"
        ) from None


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lunshare-helper", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--socket", default="/run/lunshare/helper.sock")
    parser.add_argument(
        "--user", default="lunshare", help="the only user besides root that is served"
    )
    parser.add_argument("--filters", default="/etc/lunshare/rootwrap.d")
    parser.add_argument("--exec-dirs", default="/usr/sbin,/usr/bin,/sbin,/bin")
    parser.add_argument(
        "--config", default=PATH, help="what of this node is served; a file of root"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
