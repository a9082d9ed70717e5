# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of the API above the same commands of LVM; both in one run, by turns.

``python -m tests.bench.lvm_verbs``, as root on a node with the daemon. Bare is what an
administrator types on a thin pool: lvcreate for a volume, lvcreate -s for a snapshot,
lvremove; a clone is a snapshot that is active.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from tests.bench.figures import Figure, median_ms, part_parser, say, timed, write_part
from tests.bench.http import Client

_PORT, _ROUNDS = 8776, 9
_GROUP = "lunshare"
_POOL = f"{_GROUP}/{_GROUP}-pool"
#: Measured before: 1.6, 1.4, 1.7 and 1.4.
_MOST = 1.3
#: An answer takes 25 ms of CPU in the lab. With 5 ms the daemon mostly answered polls.
_PAUSE_SECONDS = 0.03
#: A delete is answered at once. A client that polls would measure its pauses and these
#: answers, half of what a delete adds to lvremove; so its row is read instead.
_DATABASE, _ROW_SECONDS = "file:/var/lib/lunshare/lunshare.sqlite?mode=ro", 0.005

Times = dict[str, list[float]]


class Http:
    """The operations over HTTP, each until its end."""

    volumes, snapshots = "volumes", "snapshots"

    def __init__(self) -> None:
        self._api = Client(_PORT)
        self._rows = sqlite3.connect(_DATABASE, uri=True, isolation_level=None)

    def fresh(self) -> None:
        """Connect again."""
        self._api.fresh()

    def create(self, **of: str) -> str:
        """Create a volume of 1 GiB; returns its id."""
        asked = {"volume": {"size": 1, **of}}
        created = self._api("POST", "/volumes", asked)["volume"]
        return self._done("volumes", created)

    def clone(self, source: str) -> str:
        """A volume with another's bytes."""
        return self.create(source_volid=source)

    def snapshot(self, volume: str) -> str:
        """Create a snapshot; returns its id."""
        asked = {"snapshot": {"volume_id": volume}}
        created = self._api("POST", "/snapshots", asked)["snapshot"]
        return self._done("snapshots", created)

    def delete(self, kind: str, identity: str) -> None:
        """Delete it, and return when it is gone."""
        self._api("DELETE", f"/{kind}/{identity}")
        query = f"SELECT 1 FROM {kind} WHERE id = ? AND NOT deleted"
        while self._rows.execute(query, [identity]).fetchone():
            time.sleep(_ROW_SECONDS)

    def _done(self, kind: str, created: dict[str, Any]) -> str:
        one = kind.removesuffix("s")
        while created["status"] == "creating":
            time.sleep(_PAUSE_SECONDS)
            created = self._api("GET", f"/{kind}/{created['id']}")[one]
        if created["status"] != "available":
            raise RuntimeError(f"{one} {created['id']} is {created['status']}")
        return str(created["id"])


class Bare:
    """The commands."""

    volumes = snapshots = "volumes"

    def fresh(self) -> None:
        """Each command is a process."""

    def create(self) -> str:
        """A thin volume of 1 GiB."""
        return self._made("--thin", "--virtualsize", "1g", of=_POOL)

    def snapshot(self, volume: str) -> str:
        """A snapshot that is not active."""
        return self._made("--snapshot", "-ky", of=f"{_GROUP}/{volume}")

    def clone(self, volume: str) -> str:
        """A volume with another's bytes."""
        return self._made("--snapshot", "-kn", of=f"{_GROUP}/{volume}")

    def delete(self, _: str, name: str) -> None:
        """Remove it."""
        _run("lvremove", "--yes", f"{_GROUP}/{name}")

    def _made(self, *how: str, of: str) -> str:
        name = f"bench-{uuid.uuid4()}"
        _run("lvcreate", "--yes", *how, "-n", name, of)
        return name


def main(argv: list[str]) -> None:
    """Print them, and write bench-PART.json into the repository's build/."""
    part = part_parser("verbs").parse_args(argv).part
    write_part(part, [say(each) for each in figures()])


def figures() -> Iterator[Figure]:
    """Over HTTP, bare, and their ratio."""
    http, bare = _by_turns()
    for verb, times in http.items():
        mine, theirs = median_ms(times), median_ms(bare[verb])
        yield Figure(f"{verb} over HTTP, LVM thin", mine, "ms")
        yield Figure(f"{verb} by LVM's commands", theirs, "ms")
        yield Figure(f"{verb}, times LVM's commands", mine / theirs, "", most=_MOST)


def _by_turns() -> tuple[Times, Times]:
    http, bare = Http(), Bare()
    mine: Times = {}
    theirs: Times = {}
    for _ in range(_ROUNDS):
        _round(mine, http)
        _round(theirs, bare)
    return mine, theirs


def _round(times: Times, by: Http | Bare) -> None:
    def clock(verb: str, work: Callable[[], Any]) -> Any:
        created: list[Any] = []
        times.setdefault(verb, []).append(timed(lambda: created.append(work())))
        return created[0]

    by.fresh()
    volume = clock("create", by.create)
    snapshot_id = clock("snapshot", lambda: by.snapshot(volume))
    copy = clock("clone", lambda: by.clone(volume))
    clock("delete", lambda: by.delete(by.volumes, copy))
    by.delete(by.snapshots, snapshot_id)
    by.delete(by.volumes, volume)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
