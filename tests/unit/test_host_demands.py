# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What hosts hold with their commands, from what the kernel counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lunshare.helper.lio import host_demands
from lunshare.helper.lio.host_demands import HostDemands
from lunshare.helper.lio.target_reads import TargetReads
from lunshare.helper.lio.target_tree import Target
from tests.stands.waiting import until
from tests.unit.test_stale_requests import HOST, OTHER, PREFIX, target

__all__ = ["target"]

MIB = 1024**2


class Host:
    """What the kernel shows of one host."""

    def __init__(self, target: Target, name: str) -> None:
        self.acl = Path(target.acl(name))
        for folder in ("lun_0/statistics/scsi_auth_intr", "fabric_statistics"):
            (self.acl / folder).mkdir(parents=True)
        (self.acl / "fabric_statistics/iscsi_sess_stats").mkdir()

    def shows(self, session: int, read: int, sent: int, mode: str = "ro") -> None:
        """MiB."""
        text = f"LIO Session ID: {session}" if session else "No active iSCSI Session"
        (self.acl / "info").unlink(missing_ok=True)
        (self.acl / "info").write_text(text)
        protected = "1" if mode == "ro" else "0"
        (self.acl / "lun_0/write_protect").write_text(protected)
        asked = self.acl / "lun_0/statistics/scsi_auth_intr"
        moved = self.acl / "fabric_statistics/iscsi_sess_stats"
        for name in ("read", "write"):
            (asked / f"{name}_mbytes").write_text(f"{read}\n")
        for name in ("tx", "rx"):
            octets = str(sent * MIB) if session else ""
            (moved / f"{name}data_octs").write_text(octets)


@pytest.fixture
def demands(target: Target, monkeypatch: pytest.MonkeyPatch) -> HostDemands:
    root = os.path.dirname(target.path)
    monkeypatch.setattr(host_demands, "ISCSI", root)
    return HostDemands(TargetReads(PREFIX))


@pytest.fixture
def host(target: Target) -> Host:
    return Host(target, OTHER)


def held(demands: HostDemands) -> dict[str, int]:
    """MiB, by the last letters of the initiator."""
    found = demands.read()
    return {os.path.basename(acl): each.held // MIB for acl, each in found.items()}


def test_demand_counts_from_the_first_reading_on(
    demands: HostDemands, host: Host
) -> None:
    host.shows(session=4, read=9000, sent=100)
    assert held(demands) == {OTHER: 0}
    host.shows(session=4, read=9700, sent=250)
    assert held(demands) == {OTHER: 550}


def test_the_first_host_of_a_node_holds_what_it_has_asked_for(
    target: Target, demands: HostDemands
) -> None:
    os.unlink(f"{target.acl(OTHER)}/info")
    assert held(demands) == {}
    Host(target, OTHER).shows(session=1, read=700, sent=1)
    assert held(demands) == {OTHER: 699}


def test_demand_of_an_earlier_session_is_not_held(
    demands: HostDemands, host: Host
) -> None:
    host.shows(session=4, read=0, sent=0)
    demands.read()
    host.shows(session=4, read=500, sent=100)
    demands.read()
    host.shows(session=0, read=500, sent=0)
    assert held(demands) == {}
    host.shows(session=5, read=640, sent=40)
    assert held(demands) == {OTHER: 100}


def test_a_host_with_another_lun_holds_what_it_has_asked_for_since(
    demands: HostDemands, host: Host
) -> None:
    host.shows(session=4, read=9000, sent=0)
    demands.read()
    host.shows(session=5, read=700, sent=0)
    assert held(demands) == {OTHER: 700}


def test_a_new_host_holds_what_it_has_asked_for(
    target: Target, demands: HostDemands, host: Host
) -> None:
    host.shows(session=4, read=0, sent=0)
    demands.read()
    Host(target, HOST).shows(session=1, read=700, sent=1)
    assert held(demands) == {OTHER: 0, HOST: 699}


def test_writes_of_a_host_that_may_write_count(
    demands: HostDemands, host: Host
) -> None:
    host.shows(session=4, read=0, sent=0)
    demands.read()
    host.shows(session=4, read=300, sent=100)
    assert held(demands) == {OTHER: 200}
    host.shows(session=4, read=300, sent=100, mode="rw")
    assert held(demands) == {OTHER: 400}


def test_a_host_whose_sessions_were_ended_holds_nothing(
    demands: HostDemands, host: Host
) -> None:
    host.shows(session=4, read=0, sent=0)
    demands.read()
    host.shows(session=4, read=300, sent=100)
    [demand] = demands.read().values()
    host.shows(session=0, read=350, sent=0)
    demands.forget(demand)
    host.shows(session=5, read=360, sent=0)
    assert held(demands) == {OTHER: 10}


def test_a_host_that_cannot_be_read_hides_no_other(
    target: Target, demands: HostDemands, host: Host
) -> None:
    """The kernel locks what it removes: a FIFO, which is read when it has a writer."""
    Host(target, HOST).shows(session=1, read=0, sent=0)
    host.shows(session=4, read=0, sent=0)
    info = host.acl / "info"
    info.unlink()
    os.mkfifo(info)
    for _ in range(2):  # the second one leaves it out at once
        assert held(demands) == {HOST: 0}
    with info.open("w") as fifo:
        host.shows(session=4, read=0, sent=0)
        fifo.write("No active iSCSI Session")
    until(lambda: held(demands) == {HOST: 0, OTHER: 0})
