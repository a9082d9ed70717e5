# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Write access that goes from one host to another while it writes, on a real target."""

from __future__ import annotations

import threading

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Host, Info, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import Session
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system

_ROUNDS = 40


class Writes:
    """Numbers that a host writes to one block, as fast as it can, until it must not.

    ``acknowledged`` is the last one whose write has been answered.
    """

    def __init__(self, session: Session, at: int) -> None:
        self.acknowledged = -1
        self._session, self._at = session, at
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_progress(self) -> None:
        until(lambda: self.acknowledged >= 2 or not self._thread.is_alive())
        assert self._thread.is_alive()

    def wait_for_end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def possible(self) -> set[bytes]:
        """What the block may have then; the last write may have had no answer."""
        return {block(str(self.acknowledged + more)) for more in (0, 1)}

    def _run(self) -> None:
        try:
            while True:
                self._session.write(self._at, block(str(self.acknowledged + 1)))
                self.acknowledged += 1
        except Exception:
            return  # the session has ended; the caller looks at the block


def test_acknowledged_writes_survive_handovers_and_one_host_writes(
    api: Api, volume: str, host: MakeHost
) -> None:
    """A third host, which only reads, sees that nothing more lands."""
    hosts: list[Host] = [host("first"), host("second")]
    rows = [
        api.attach(volume, each, mode)
        for each, mode in zip(hosts, ("rw", "ro"), strict=True)
    ]
    third = host("third")
    reading = third.login(api.attach(volume, third, "ro")["connection_info"])
    infos: list[Info] = [row["connection_info"] for row in rows]
    sessions = [each.login(info) for each, info in zip(hosts, infos, strict=True)]
    path = f"/v3/volumes/{volume}/handover"
    generation = api.must("GET", path)["fencing_generation"]
    for number in range(_ROUNDS):
        old, new = number % 2, 1 - number % 2
        writes = Writes(sessions[old], at=8 * old)
        writes.wait_for_progress()
        body = {"lunshare:handover": {"from": rows[old]["id"], "to": rows[new]["id"]}}
        shown = api.must("POST", f"/v3/volumes/{volume}/action", body)
        landed = reading.read(8 * old)
        assert shown["handover"]["status"] == "done", shown
        assert shown["fencing_generation"] == generation + number + 1
        assert Live(volume).modes()[hosts[old].initiator] == "ro"
        assert Live(volume).modes()[hosts[new].initiator] == "rw"
        writes.wait_for_end()
        assert landed in writes.possible()
        sessions[old] = hosts[old].login(infos[old])
        assert write_protected(sessions[old], 8 * old)
        sessions[new] = hosts[new].login(infos[new])
        sessions[new].write(64, block(f"handed over {number}"))
        assert reading.read(64) == block(f"handed over {number}")
        assert reading.read(8 * old) == landed
