# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What must survive a reboot or a power cut, and the tests that check it afterwards.

tests/system/prepare_outage.py writes the note before; the tests read it.
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
from tests.system.kernel import Live, exported_volumes
from tests.system.lio_hosts import READ, WRITE, Refused, Session

NOTE = Path("/var/lib/lunshare-left.json")
LOG = Path("/var/lib/lunshare-left.log")
DATA = "written before"
#: A host with a reservation, a detached host with a key, and a host without a key.
KEYED = HOLDER, QUITTER, OUTSIDER = "left-holder", "left-quitter", "left-outsider"
_CONFLICT = 0x18


def key(name: str) -> bytes:
    """The reservation key of a host."""
    return name.encode().rjust(8, b".")[-8:]


def register(session: Session, mine: bytes) -> None:
    """PERSISTENT RESERVE OUT, REGISTER AND IGNORE, with APTPL (survives power loss)."""
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
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def write_durably(path: Path, text: str) -> None:
    """Write a file that survives a power loss."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


class OutageNote:
    """The note of prepare_outage."""

    def __init__(self) -> None:
        note: dict[str, Any] = json.loads(NOTE.read_text())
        self.boot, self.volumes = note["boot"], note["volumes"]
        self.attached: list[dict[str, Any]] = note["attached"]
        self.reserved: str = note["reserved"]
        self.detached: str = note["detached"]
        self.busy: str = note["busy"]
        self.keyed: dict[str, Any] = note["keyed"]

    def last_entries(self) -> dict[str, str | None]:
        """The log of the client that worked until the outage: host to its last answer.

        An attachment's id; "" when it is detached; None without an answer.
        """
        known: dict[str, str | None] = {}
        for line in LOG.read_text().splitlines(keepends=True):
            # The outage may have cut off the last line.
            if line.endswith("\n"):
                host, _, what = line.strip().partition(" ")
                known[host] = None if what == "?" else what
        return known


class OutageSurvival:
    """The same node, after its restart."""

    @pytest.fixture
    def note(self) -> OutageNote:
        return OutageNote()

    @pytest.fixture
    def hosts(self, note: OutageNote) -> Iterator[list[tuple[Host, dict[str, Any]]]]:
        """Each host with the note of its attachment."""
        created = [(Host(each["host"]), each) for each in note.attached]
        yield created
        for host, _ in created:
            host.leave()

    def test_machine_was_restarted(self, note: OutageNote) -> None:
        assert note.boot != boot()

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
        other = Host("other")
        for _, each in hosts:
            assert other.refused(each["info"])
            assert other.refused({**each["info"], "auth_method": None})

    def test_reservation_survives_without_the_key_of_a_detached_host(
        self, note: OutageNote
    ) -> None:
        host = Host(OUTSIDER)
        session = host.login(note.keyed["info"])
        assert keys(session) == {key(HOLDER)}
        with pytest.raises(Refused) as conflict:
            session.write(0, block("not registered"))
        assert conflict.value.status == _CONFLICT
        host.leave()

    def test_attachments_and_reserved_rows_survive_and_detached_do_not(
        self, api: Api, note: OutageNote
    ) -> None:
        for each in note.attached:
            shown = api.must("GET", f"/v3/attachments/{each['id']}")["attachment"]
            assert shown["status"] == "attached"
            assert shown["connection_info"] == each["info"]
            initiator = Host(each["host"]).initiator
            assert Live(shown["volume_id"]).modes()[initiator] == each["mode"]
        path = f"/v3/attachments/{note.reserved}"
        assert api.must("GET", path)["attachment"]["status"] == "reserved"
        assert api.detach(note.detached)[0] == 404

    def test_last_acknowledged_answers_hold(self, api: Api, note: OutageNote) -> None:
        known = note.last_entries()
        assert known
        rows = {row["id"] for row in api.attachments(note.busy)}
        live = Live(note.busy)
        held = {name: _tag(live, name) for name in live.modes()}
        assert set(held.values()) == rows
        for name, attachment in known.items():
            if attachment is not None:
                assert held.get(Host(name).initiator, "") == attachment

    def test_node_is_ready_and_has_no_orphans(self, api: Api, note: OutageNote) -> None:
        status, answer = api.call("GET", "/readyz")
        assert status == 200
        assert answer["unknown"] == []
        listed = api.must("GET", "/v3/volumes")["volumes"]
        assert {each["id"] for each in listed} == set(note.volumes)
        assert exported_volumes() <= set(note.volumes)


def _tag(live: Live, initiator: str) -> str:
    """The attachment id in an ACL's tag."""
    return (live.acl(initiator) / "tag").read_text().strip()
