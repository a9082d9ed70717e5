# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""SCSI reservations of two hosts, through the API, on a real target.

That they survive a reboot (APTPL) is tested by after_outage.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Host, block
from tests.system.kernel import Live
from tests.system.lio_hosts import READ, WRITE, Refused, Session
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system

_CONFLICT = 0x18
#: Service actions of PERSISTENT RESERVE OUT.
REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT = range(6)
REGISTER_ANYWAY = 6
WERO, WERO_NAME = 5, "Write Exclusive Access, Registrants Only"
A, B = b"key-of-a", b"key-of-b"
AT = 8


class Cluster:
    """A volume that two hosts write, and their sessions."""

    def __init__(self, api: Api, alpha: Host, beta: Host) -> None:
        self.api, self.hosts = api, {"alpha": alpha, "beta": beta}
        self.volume = api.volume(volume_type=api.cluster_type())
        self.rows = {
            name: api.attach(self.volume, host) for name, host in self.hosts.items()
        }

    def login(self, name: str) -> Session:
        return self.hosts[name].login(self.rows[name]["connection_info"])

    def shown(self) -> dict[str, tuple[list[str], str | None]]:
        """The hosts that have keys, with what they hold, as the API has it."""
        path = f"/v3/lunshare/hosts?volume_id={self.volume}"
        lines = self.api.must("GET", path)["hosts"]
        return {
            line["host"]: (line["reservation_keys"], line["reservation"])
            for line in lines
            if line["reservation_keys"]
        }

    def end(self) -> None:
        for host in self.hosts.values():
            host.leave()
        for row in self.rows.values():
            path = f"/v3/attachments/{row['id']}?force=true"
            assert self.api.call("DELETE", path)[0] in (200, 404)
        self.api.delete_volume(self.volume)


@pytest.fixture
def cluster(api: Api, host: MakeHost) -> Any:
    made = Cluster(api, host("alpha"), host("beta"))
    yield made
    made.end()


def out(session: Session, action: int, mine: bytes, other: bytes = bytes(8)) -> None:
    """PERSISTENT RESERVE OUT, write exclusive for registrants."""
    kind = 0 if action in (REGISTER, REGISTER_ANYWAY, CLEAR) else WERO
    cdb = bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0])
    session.command(cdb, WRITE, 24, mine + other + bytes(8))


def keys(session: Session) -> set[bytes]:
    """READ KEYS: what the kernel tells the hosts."""
    found = session.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]), READ, 255)
    length = int.from_bytes(found[4:8], "big")
    return {found[8 + at : 16 + at] for at in range(0, length, 8)}


def number(key: bytes) -> str:
    return f"0x{key.hex()}"


def conflicts(session: Session) -> bool:
    """Whether a write is refused because of the reservation of another host."""
    try:
        session.write(AT, block("not allowed"))
    except Refused as refused:
        return refused.status == _CONFLICT
    return False


def registered(cluster: Cluster) -> tuple[Session, Session]:
    """Both hosts have a key, and alpha holds the reservation."""
    alpha, beta = cluster.login("alpha"), cluster.login("beta")
    out(alpha, REGISTER_ANYWAY, bytes(8), A)
    out(beta, REGISTER_ANYWAY, bytes(8), B)
    out(alpha, RESERVE, A)
    return alpha, beta


def test_the_api_shows_what_the_hosts_register_reserve_preempt_and_clear(
    cluster: Cluster,
) -> None:
    alpha, beta = cluster.login("alpha"), cluster.login("beta")
    assert cluster.shown() == {}
    out(alpha, REGISTER, bytes(8), A)
    assert cluster.shown() == {"alpha": ([number(A)], None)}
    out(alpha, RESERVE, A)
    assert cluster.shown() == {"alpha": ([number(A)], WERO_NAME)}
    assert conflicts(beta)
    out(beta, REGISTER, bytes(8), B)
    beta.write(AT, block("a registrant writes"))
    assert cluster.shown() == {
        "alpha": ([number(A)], WERO_NAME),
        "beta": ([number(B)], None),
    }
    out(beta, PREEMPT, B, A)
    assert cluster.shown() == {"beta": ([number(B)], WERO_NAME)}
    until(lambda: conflicts(alpha))  # first the unit attention of the preemption
    out(beta, CLEAR, B)
    assert cluster.shown() == {}
    until(lambda: not conflicts(alpha))


def test_preempt_and_abort_leaves_no_write_of_the_other_host(cluster: Cluster) -> None:
    """Between two writes of alpha: beside one the kernel may not answer."""
    alpha, beta = registered(cluster)
    alpha.write(AT, block("alpha"))
    out(beta, PREEMPT_AND_ABORT, B, A)
    assert cluster.shown() == {"beta": ([number(B)], WERO_NAME)}
    until(lambda: conflicts(alpha))
    assert beta.read(AT) == block("alpha")
    assert keys(beta) == {B}


def test_a_detach_says_which_key_it_would_drop_and_force_drops_it(
    cluster: Cluster,
) -> None:
    alpha, beta = registered(cluster)
    row = cluster.rows["alpha"]["id"]
    status, answer = cluster.api.detach(row)
    assert status == 409
    message = answer["conflictingRequest"]["message"]
    assert number(A) in message
    assert "force=true" in message
    body = {"lunshare:detach": {"attachments": [row]}}
    path = f"/v3/volumes/{cluster.volume}/action"
    assert cluster.api.call("POST", path, body)[0] == 409
    alpha.write(AT, block("nothing has begun"))
    assert cluster.shown()["alpha"] == ([number(A)], WERO_NAME)
    assert cluster.api.detach(row, force=True)[0] == 200
    assert cluster.shown() == {"beta": ([number(B)], None)}
    assert not alpha.alive
    out(beta, REGISTER, B, bytes(8))  # an ordinary end
    assert cluster.api.detach(cluster.rows["beta"]["id"])[0] == 200


def test_a_fence_is_not_refused_and_drops_the_key(cluster: Cluster) -> None:
    registered(cluster)
    path = "/v3/lunshare/fences/alpha"
    assert cluster.api.must("PUT", path, {"fence": {}})["fence"]["status"] == "fenced"
    assert cluster.shown() == {"beta": ([number(B)], None)}
    cluster.api.must("DELETE", path)


def test_a_repair_that_builds_the_target_anew_drops_no_key(cluster: Cluster) -> None:
    """A person has disabled the target: all sessions end, and it is made again."""
    for isid, each in enumerate(cluster.hosts.values()):
        each.isid = isid  # it comes back by the port that has the key
    registered(cluster)
    before, live = cluster.shown(), Live(cluster.volume)
    (live.group / "enable").write_text("0")
    body = {"verify": {"volume_id": cluster.volume, "repair": True}}
    answer = cluster.api.must("POST", "/v3/lunshare/verify", body)["verify"]
    assert answer["targets"][0]["drift"][0]["kind"] == "target"
    assert live.enabled
    assert cluster.shown() == before
    for other in cluster.hosts.values():
        other.leave()
    beta = cluster.login("beta")
    assert keys(beta) == {A, B}
    out(beta, PREEMPT, B, A)
    assert conflicts(cluster.login("alpha"))


def test_a_host_with_two_paths_shows_both_keys_and_sessions(cluster: Cluster) -> None:
    """Each path is a port of its own, with an ISID of its own."""
    paths = [cluster.login("alpha") for _ in range(2)]
    for path in paths:
        out(path, REGISTER_ANYWAY, bytes(8), A)
    assert cluster.shown() == {"alpha": ([number(A)] * 2, None)}
    url = f"/v3/lunshare/hosts?volume_id={cluster.volume}"
    lines = cluster.api.must("GET", url)["hosts"]
    (line,) = (line for line in lines if line["host"] == "alpha")
    assert line["sessions"] == 2
