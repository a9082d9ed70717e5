# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What must survive a reboot or a power cut, and how that is seen afterwards.

``leave`` (tests/system/leave.py) writes the note before; the tests read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.api import Api
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live, ours
from tests.system.lio_hosts import READ, WRITE, Refused, Session

NOTE = Path("/var/lib/lunshare-left.json")
LOG = Path("/var/lib/lunshare-left.log")
DATA = "written before"
#: Who holds a reservation, who left with a key, and who never had one.
KEYED = HOLDER, QUITTER, OUTSIDER = "left-holder", "left-quitter", "left-outsider"
_CONFLICT = 0x18


def key(name: str) -> bytes:
    """The reservation key of a host."""
    return name.encode().rjust(8, b".")[-8:]


def register(session: Session, mine: bytes) -> None:
    """PERSISTENT RESERVE OUT, REGISTER AND IGNORE, that outlives the power (APTPL)."""
    _reserve_out(session, 6, 0, bytes(8) + mine + bytes([0, 0, 0, 0, 1, 0, 0, 0]))


def reserve(session: Session, mine: bytes) -> None:
    """RESERVE, write exclusive for registrants."""
    _reserve_out(session, 1, 5, mine + bytes(16))


def keys(session: Session) -> set[bytes]:
    """PERSISTENT RESERVE IN, READ KEYS."""
    found = session.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]), READ, 255)
    length = int.from_bytes(found[4:8], "big")
    return {found[8 + at : 16 + at] for at in range(0, length, 8)}


def _reserve_out(session: Session, action: int, kind: int, data: bytes) -> None:
    cdb = bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0])
    session.command(cdb, WRITE, len(data), data)


def boot() -> str:
    """The kernel's name for the time since it started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def written(path: Path, text: str) -> None:
    """Write a file so that it outlives the power."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


class Left:
    """The note of ``leave``."""

    def __init__(self) -> None:
        note: dict[str, Any] = json.loads(NOTE.read_text())
        self.boot, self.volumes = note["boot"], note["volumes"]
        self.attached: list[dict[str, Any]] = note["attached"]
        self.reserved: str = note["reserved"]
        self.detached: str = note["detached"]
        self.busy: str = note["busy"]
        self.keyed: dict[str, Any] = note["keyed"]

    def last_words(self) -> dict[str, str | None]:
        """Of the client that was at work to the last: host to what it knows.

        An attachment's id, "" when it is detached, None while it waits.
        """
        known: dict[str, str | None] = {}
        for line in LOG.read_text().splitlines(keepends=True):
            # The last line may have been cut off by the power.
            if line.endswith("\n"):
                host, _, what = line.strip().partition(" ")
                known[host] = None if what == "?" else what
        return known


class Survived:
    """The same node, started again."""

    @pytest.fixture
    def left(self) -> Left:
        return Left()

    @pytest.fixture
    def hosts(self, left: Left) -> Iterator[list[tuple[Host, dict[str, Any]]]]:
        """Each host with what it was told when it was attached."""
        made = [(Host(each["host"]), each) for each in left.attached]
        yield made
        for host, _ in made:
            host.leave()

    def test_machine_was_restarted(self, left: Left) -> None:
        assert left.boot != boot()

    def test_every_host_logs_in_and_has_its_mode(
        self, hosts: list[tuple[Host, dict[str, Any]]]
    ) -> None:
        assert {each["mode"] for _, each in hosts} == {"ro", "rw"}
        for host, each in hosts:
            session = host.login(each["info"])
            assert session.serial == each["serial"]
            assert session.read(0) == block(DATA)
            if each["mode"] == "rw":
                session.write(8, block("written after"))
            else:
                assert write_protected(session)

    def test_other_hosts_are_refused(
        self, hosts: list[tuple[Host, dict[str, Any]]]
    ) -> None:
        nobody = Host("nobody")
        for _, each in hosts:
            assert nobody.refused(each["info"])
            assert nobody.refused({**each["info"], "auth_method": None})

    def test_reservation_survives_without_the_key_of_a_detached_host(
        self, left: Left
    ) -> None:
        host = Host(OUTSIDER)
        session = host.login(left.keyed["info"])
        assert keys(session) == {key(HOLDER)}
        with pytest.raises(Refused) as conflict:
            session.write(0, block("not registered"))
        assert conflict.value.status == _CONFLICT
        host.leave()

    def test_attachments_and_reserved_rows_survive_and_detached_do_not(
        self, api: Api, left: Left
    ) -> None:
        for each in left.attached:
            shown = api.must("GET", f"/v3/attachments/{each['id']}")["attachment"]
            assert shown["status"] == "attached"
            assert shown["connection_info"] == each["info"]
            initiator = Host(each["host"]).initiator
            assert Live(shown["volume_id"]).modes()[initiator] == each["mode"]
        path = f"/v3/attachments/{left.reserved}"
        assert api.must("GET", path)["attachment"]["status"] == "reserved"
        assert api.detach(left.detached)[0] == 404

    def test_last_acknowledged_answers_hold(self, api: Api, left: Left) -> None:
        known = left.last_words()
        assert known
        rows = {row["id"] for row in api.attachments(left.busy)}
        live = Live(left.busy)
        held = {name: _tag(live, name) for name in live.modes()}
        assert set(held.values()) == rows
        for name, attachment in known.items():
            if attachment is not None:
                assert held.get(Host(name).initiator, "") == attachment

    def test_node_is_ready_and_has_no_orphans(self, api: Api, left: Left) -> None:
        status, told = api.call("GET", "/readyz")
        assert status == 200
        assert told["unknown"] == []
        listed = api.must("GET", "/v3/volumes")["volumes"]
        assert {each["id"] for each in listed} == set(left.volumes)
        assert ours() <= set(left.volumes)


def _tag(live: Live, initiator: str) -> str:
    """The attachment that an ACL says it is there for."""
    return (live.acl(initiator) / "tag").read_text().strip()
