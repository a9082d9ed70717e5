# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The guest as a storage node: shares mounted, lunshare in place, commands run."""

import shlex
import sys
import time
from collections.abc import Sequence

from tests.lab.guest import Guest
from tests.lab.steps import LabError

MOUNT = "mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000"
PATH = "/opt/lunshare/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SSH_FAILED = 255
UNITS = "lunshare-helper.socket lunshare-helper.service lunshared.service"


def woken(guest: Guest, extra: Sequence[str]) -> None:
    """Set the clock, which stopped while the state was saved, and mount."""
    mounts = f"mkdir /run/lab && {MOUNT},ro lab /run/lab && {MOUNT} build /build"
    guest.output(f"date -s @{time.time():.3f} && {mounts}")
    _mount(guest, extra)


def _mount(guest: Guest, labels: Sequence[str]) -> None:
    """Mount the additional disks; their units are opt-LABEL.mount."""
    for label in labels:
        waited = f"udevadm wait --timeout=60 /dev/disk/by-label/{label}"
        guest.output(f"{waited} && systemctl start opt-{label}.mount")


def provision(guest: Guest, *, bare: bool) -> None:
    """Install and start; on failure, show the journal of the units."""
    what = "bare" if bare else "node"
    _or_journal(guest, f"sh /run/lab/provision {what}")


def booted(guest: Guest, extra: Sequence[str], *, bare: bool) -> None:
    """After a boot: mount, and wait for the services that systemd starts."""
    guest.output(f"{MOUNT} build /build")
    _mount(guest, extra)
    if not bare:
        _or_journal(guest, "systemctl start lunshared.service")


def run(guest: Guest, command: Sequence[str]) -> int:
    """Run CMD with our stdout and stderr; returns its exit code."""
    line = f"cd /srv/lunshare && exec env PATH={PATH} {shlex.join(command)}"
    code = guest.call(line, tty=sys.stdin.isatty() and sys.stdout.isatty())
    if code == SSH_FAILED and not guest.alive():
        raise LabError(f"the guest ended during the command\n{guest.console()}")
    return code


def _or_journal(guest: Guest, command: str) -> None:
    try:
        guest.output(command)
    except LabError as error:
        units = " ".join(f"-u {unit}" for unit in UNITS.split())
        guest.call(f"journalctl --boot --no-pager --lines 200 {units} >&2")
        raise error
