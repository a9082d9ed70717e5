# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts that use volumes while the driver below them changes.

``alpha`` and ``gamma`` write and read without a pause. ``beta`` has alpha's volume, and
its attachment is read-only.
"""

from __future__ import annotations

import os
from pathlib import Path

from lunshare.drivers.values import Auth
from tests.bench.http import Client
from tests.cinder_guest import takeover_steps as steps
from tests.cinder_guest.process_accounting import ended_processes
from tests.cinder_guest.takeover_steps import BACKEND
from tests.demo.hosts import SHARED, Host, Pulse
from tests.fleet import api
from tests.stands.waiting import until

#: A block of alpha's volume beyond what the others write and read.
SPARE = 4096
_LONGEST = 10.0  # seconds of one I/O; the machine may be busy

Rows = list[tuple[str, str, str, str]]


class Scene:
    """Two volumes of Cinder's LVM driver with three hosts, a snapshot and a clone."""

    def __init__(self, client: Client, directory: Path) -> None:
        self._client, self._directory = client, directory
        self.started: list[str] = []  # the processes of the last attach
        self.shared, self.plain = (api.create(client, BACKEND) for _ in range(2))
        self.alpha = self.attach(self.shared, "alpha", "rw")
        self.beta = self.attach(self.shared, "beta", "ro")
        self.gamma = self.attach(self.plain, "gamma", "rw")
        self.alpha_bytes, self.gamma_bytes = os.urandom(SHARED), os.urandom(SHARED)
        self.alpha.write(self.alpha_bytes)
        self.gamma.write(self.gamma_bytes)
        self.snapshot = api.snapshot(client, self.shared)
        self.clone = api.create(client, BACKEND, snapshot_id=self.snapshot)
        self.serial = self.alpha.live().serial
        self._pulses = {each: Pulse(each, True) for each in (self.alpha, self.gamma)}
        self.remember()

    def attach(self, volume_id: str, name: str, mode: str) -> Host:
        """A host with an attachment, which has not logged in yet."""
        host = Host(name)
        host.initiator, host.mode = api.iqn(name), mode
        with ended_processes(self._directory) as self.started:
            host.attachment, host.info = api.attach(self._client, volume_id, name, mode)
        return host

    def detach(self, host: Host) -> None:
        """Log out, and delete the attachment."""
        if host in self._pulses:
            self._pulses.pop(host).stop()
        host.leave()
        api.detach(self._client, host.attachment)

    def attach_gamma_again(self) -> None:
        """Its volume has had no host for a moment."""
        self.detach(self.gamma)
        assert not steps.is_exported(self.plain)
        assert not steps.backstores(self.plain)
        self.gamma = self.attach(self.plain, "gamma", "rw")
        assert self.gamma.read() == self.gamma_bytes
        self._pulses[self.gamma] = Pulse(self.gamma, True)

    def remember(self) -> None:
        """Note the sessions and the rows that the next change must keep."""
        self._before = self._sessions(), self._rows()

    def need_nothing_felt(self) -> None:
        """The hosts go on without an error in the same sessions, and rows are kept."""
        for host, pulse in self._pulses.items():
            until(pulse.past(5), f"I/O of {host.name}", 300)
            count, longest = pulse.mark()
            print(f"  {host.name}: {count} I/Os, the slowest {longest * 1000:.0f} ms")
            assert pulse.error is None, f"{host.name}: {pulse.error}"
            assert longest < _LONGEST
        assert (self._sessions(), self._rows()) == self._before

    def need_every_byte(self) -> None:
        """Both hosts log in a second time, with the credentials they got, and read."""
        assert bytes_of(self.alpha) == self.alpha_bytes
        assert bytes_of(self.gamma) == self.gamma_bytes

    def may_beta_write(self) -> bool:
        """Log it in again, and ask its LUN."""
        self.beta.live().close()  # the target may have ended the session
        self.beta.session = None
        return not self.beta.live().write_protected

    def _sessions(self) -> list[str]:
        """The number of each busy host's session in the kernel."""
        volumes = ((self.alpha, self.shared), (self.gamma, self.plain))
        return [steps.session(each, host.initiator) for host, each in volumes]

    def _rows(self) -> Rows:
        """What a client sees of its volumes and attachments."""
        found = self._client("GET", "/attachments/detail")["attachments"]
        volumes = self._client("GET", "/volumes/detail")["volumes"]
        return sorted(
            [(a["id"], a["volume_id"], a["status"], a["attach_mode"]) for a in found]
            + [
                (v["id"], v["status"], v["size"], v["migration_status"])
                for v in volumes
            ]
        )


def bytes_of(host: Host) -> bytes:
    """What a host that does I/O reads in another session, with the same login."""
    twin = Host(host.name)
    twin.initiator, twin.info = host.initiator, host.info
    try:
        return twin.read()
    finally:
        twin.leave()


def auth_of(host: Host) -> Auth:
    """The credentials that a host got."""
    return Auth(host.info["auth_username"], host.info["auth_password"])
