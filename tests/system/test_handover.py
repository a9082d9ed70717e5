# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Write access that goes from one host to another while it writes, on a real target.

``--handovers`` times (``make handovers``: 1,000). It prints how long no host could
write at the target: from the last write that the former writer was told of, until the
other host was let in. The relogin of a host is not in it. Beside it: for how long the
guest had no processor meanwhile, which another program of the machine may have had.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Host, Info, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import Session
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system


_MARGIN = 0.05  # seconds that a handover may take beside the writes in flight
#: It wants to run a thousand times a second, and prints when it could not.
_WATCH = """
import time
before = time.time()
while True:
    time.sleep(0.001)
    now = time.time()
    if now - before > 0.015:
        print(before, now, flush=True)
    before = now
"""


@dataclass(frozen=True)
class Gap:
    """Nobody could write; ``longest`` is the slowest write before it, in seconds."""

    began: float
    ended: float
    longest: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def is_late(self) -> bool:
        return self.seconds > self.longest + _MARGIN

    def stalled(self, stalls: list[tuple[float, float]]) -> float:
        """Return the seconds of it in which this guest's processor stood still."""
        both = ((max(a, self.began), min(b, self.ended)) for a, b in stalls)
        return sum(max(0.0, until - since) for since, until in both)


@pytest.fixture
def stalls(tmp_path: Path) -> Iterator[Path]:
    """The file in which a process notes when it could not run."""
    file = tmp_path / "stalls"
    with file.open("w") as out:
        watch = subprocess.Popen([sys.executable, "-c", _WATCH], stdout=out)
        yield file
        watch.kill()
        watch.wait()


class Writes:
    """Numbers that a host writes to one block, as fast as it can, until it must not.

    ``acknowledged`` is the last one whose write has been answered, ``answered`` when
    that was, and ``longest`` the seconds that the slowest one took.
    """

    def __init__(self, session: Session, at: int) -> None:
        self.acknowledged, self.answered, self.longest = -1, 0.0, 0.0
        self._session, self._at = session, at
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_progress(self) -> None:
        until(lambda: self.acknowledged >= 2 or not self._thread.is_alive())
        assert self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self.wait_for_end()

    def wait_for_end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def possible(self) -> set[bytes]:
        """What the block may have then; the last write may have had no answer."""
        return {block(str(self.acknowledged + more)) for more in (0, 1)}

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                began = time.time()
                self._session.write(self._at, block(str(self.acknowledged + 1)))
                self.answered = time.time()
                self.acknowledged += 1
                self.longest = max(self.longest, self.answered - began)
        except Exception:
            return  # the session has ended; the caller looks at the block


def test_acknowledged_writes_survive_handovers_and_one_host_writes(
    api: Api, volume: str, host: MakeHost, request: pytest.FixtureRequest, stalls: Path
) -> None:
    """A third host, which only reads, sees that nothing more lands."""
    gaps: list[Gap] = []
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
    for number in range(request.config.getoption("--handovers")):
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
        promoted = _seconds(shown["handover"]["promoted_at"])
        gaps.append(Gap(writes.answered, promoted, writes.longest))
        assert landed in writes.possible()
        for each in hosts:
            each.leave()  # each session has a socket
        sessions[old] = hosts[old].login(infos[old])
        assert write_protected(sessions[old], 8 * old)
        sessions[new] = hosts[new].login(infos[new])
        sessions[new].write(64, block(f"handed over {number}"))
        assert reading.read(64) == block(f"handed over {number}")
        assert reading.read(8 * old) == landed
    _show(gaps, stalls.read_text())


def _show(gaps: list[Gap], noted: str) -> None:
    words = noted[: noted.rfind("\n") + 1].split()
    stalls = list(zip(map(float, words[::2]), map(float, words[1::2]), strict=True))
    seconds = sorted(gap.seconds for gap in gaps)
    late = [gap for gap in gaps if gap.is_late]
    worst = max(gaps, key=lambda gap: gap.seconds)
    median = statistics.median(seconds)
    print(
        f"{len(gaps)} handovers: nobody could write for {median:.4f}"
        f" s (median), {seconds[len(gaps) * 99 // 100]:.4f} s (of 99 in 100),"
        f" {worst.seconds:.4f} s (longest, of which {worst.stalled(stalls):.4f} s"
        f" without a processor); longest write {max(g.longest for g in gaps):.4f} s;"
        f" {len(late)} took more than {_MARGIN} s beside their own writes,"
        f" {sum(gap.stalled(stalls) > 0.02 for gap in late)} of these with no processor"
        " for more than 20 ms"
    )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
