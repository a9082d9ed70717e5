# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""When a backend's portals are closed, and what is said while they are not."""

from __future__ import annotations

import ipaddress
import logging
from typing import Any

import orjson
import pytest

from lunshare.agent.db.attachments import MAX_ROWS
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import InvalidValue, Misconfigured, Unsupported
from lunshare.drivers.protocol import frames
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import PortalHost
from lunshare.helper.firewall import firewall_requests

VOLUME, OTHER = "0a1b2c3d-0000-4000-8000-00000000000", "another volume"
HOST = PortalHost(VOLUME, "iqn.1994-05.com.example:h1", "192.0.2.1")
UNNAMED = PortalHost(VOLUME, "iqn.1994-05.com.example:h2", None)


class NodeRoot(NoRoot):
    """A root helper's answers; ``sessions`` are addresses of HOST's sessions."""

    def __init__(self) -> None:
        self.verbs: list[str] = []
        self.called: dict[str, tuple[dict[str, Any], float]] = {}
        self.guards, self.lacks, self.sessions = False, "", ["192.0.2.1"]
        self.volume, self.refused = VOLUME, 0

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        self.verbs.append(verb)
        self.called[verb] = arguments, timeout
        if self.lacks and verb.startswith("firewall."):
            raise Unsupported("a firewall for the portals", self.lacks)
        if verb == "lio.check":
            return []
        if verb == "firewall.observe":
            sources = [["198.51.100.7", "192.0.2.10"]] if self.refused else []
            return {"guards": self.guards, "refused": self.refused, "sources": sources}
        if verb == "firewall.admit":
            return self.guards
        if verb == "lio.observe":
            return [self._export()]
        self.guards = verb == "firewall.apply"
        return ["table inet lunshare created"] if self.guards else []

    def _export(self) -> dict[str, Any]:
        connector = {"initiator": HOST.initiator, "mode": "rw", "sessions": 1}
        connector |= {"addresses": self.sessions, "attachment_id": ""}
        return {
            "volume_id": self.volume,
            "connectors": [connector],
            "enabled": True,
            "remains": {},
            "registrations": [],
        }


@pytest.fixture
def root() -> NodeRoot:
    return NodeRoot()


def target(root: NodeRoot, **changed: Any) -> LioTarget:
    options = {each.dest: each.default for each in LioTarget.OPTIONS}
    options |= {"portal_firewall": None} | changed
    return LioTarget("lvm", options, root)


def opened(driver: LioTarget) -> str:
    assert driver.portal_guard
    return driver.portal_guard.open


def test_a_node_without_hosts_closes_its_portals(root: NodeRoot) -> None:
    driver = target(root)
    assert driver.admit_all([]) == ("table inet lunshare created",)
    assert (opened(driver), driver.guards_portals) == ("", True)
    assert driver.needs_addresses


@pytest.mark.parametrize(
    ("hosts", "sessions", "named"),
    [
        ([HOST, UNNAMED], ["192.0.2.1"], f"{UNNAMED.initiator} (no ip"),
        ([HOST], ["192.0.2.1", "192.0.2.2"], "(a session from 192.0.2.2)"),
        ([HOST], ["[2001:db8::1]"], "(a session from 2001:db8::1)"),
    ],
)
def test_portals_never_close_for_the_first_time_over_a_host(
    root: NodeRoot,
    caplog: pytest.LogCaptureFixture,
    hosts: list[PortalHost],
    sessions: list[str],
    named: str,
) -> None:
    root.sessions = sessions
    driver = target(root)
    for _ in range(2):
        assert driver.admit_all(hosts) == ()
    assert named in opened(driver)
    assert "initiator_networks" in opened(driver)
    assert not root.guards
    assert not driver.guards_portals
    assert not driver.needs_addresses
    assert caplog.text.count("everybody reaches the portals") == 1
    root.sessions = ["192.0.2.1"]
    assert driver.admit_all([HOST]) != ()
    assert opened(driver) == ""


@pytest.mark.parametrize(
    "options",
    [
        {"portal_firewall": True},
        {"initiator_networks": ["192.0.2.0/24"]},
    ],
)
def test_an_operators_word_closes_them(root: NodeRoot, options: Any) -> None:
    root.sessions = ["192.0.2.2"]
    driver = target(root, **options)
    assert driver.admit_all([HOST, UNNAMED]) != ()
    assert driver.needs_addresses is ("portal_firewall" in options)


def test_sessions_of_another_backends_volumes_do_not_count(root: NodeRoot) -> None:
    root.volume, root.sessions = OTHER, ["192.0.2.99"]
    assert target(root).admit_all([HOST]) != ()


def test_closed_portals_stay_closed_and_are_closed_again(root: NodeRoot) -> None:
    driver = target(root)
    driver.admit_all([HOST])
    root.sessions, root.guards = ["192.0.2.2"], False
    driver.admit_all([HOST, UNNAMED])
    assert root.guards
    restarted = target(root)
    restarted.admit_all([HOST, UNNAMED])
    assert opened(restarted) == ""


def test_a_node_without_nftables_says_so_once_and_attaches(
    root: NodeRoot, caplog: pytest.LogCaptureFixture
) -> None:
    root.lacks = "this kernel has no netfilter"
    driver = target(root)
    assert not driver.admit("192.0.2.1", True)  # so that admit_all is called
    for _ in range(2):
        assert driver.admit_all([HOST]) == ()
    assert driver.admit("192.0.2.1", True)
    assert "this kernel has no netfilter" in opened(driver)
    assert caplog.text.count("everybody reaches the portals") == 1
    root.lacks = ""
    assert driver.admit_all([HOST]) != ()
    assert driver.guards_portals


def test_a_firewall_that_is_demanded_is_there_or_nothing_is_opened(
    root: NodeRoot,
) -> None:
    driver = target(root, portal_firewall=True)
    driver.check()
    root.lacks = "this kernel has no netfilter"
    with pytest.raises(Misconfigured, match=r"portal_firewall = true.*no netfilter"):
        driver.check()
    with pytest.raises(Unsupported):
        driver.admit_all([HOST])
    target(root).check()


def test_addresses_of_many_hosts_are_one_call(root: NodeRoot) -> None:
    root.guards = True
    hosts = {"192.0.2.1": True, "192.0.2.2": False, "2001:db8::1": True}
    assert target(root).admit_each(hosts)
    assert root.verbs == ["firewall.admit"]
    fields = {"wanted": ["192.0.2.1", "2001:db8::1"], "unwanted": ["192.0.2.2"]}
    assert root.called["firewall.admit"][0] == {"backend": "lvm", **fields}


def test_switched_off_it_removes_once_what_it_has_left(root: NodeRoot) -> None:
    root.guards = True
    driver = target(root, portal_firewall=False)
    for _ in range(3):
        driver.admit_all([HOST])
    assert root.verbs == ["firewall.remove"]
    assert not root.guards
    assert driver.admit("192.0.2.1", True)
    assert opened(driver) == "portal_firewall is false"


def test_refused_connections_are_logged_when_there_are_more(
    root: NodeRoot, caplog: pytest.LogCaptureFixture
) -> None:
    driver = target(root)
    driver.admit_all([HOST])
    root.refused = 3
    with caplog.at_level(logging.WARNING):
        driver.admit_all([HOST])
        driver.admit_all([HOST])
    assert driver.portal_guard
    assert driver.portal_guard.refused == 3
    assert driver.portal_guard.sources == ("198.51.100.7 to 192.0.2.10",)
    assert caplog.text.count("connections refused at the portals") == 1
    assert "3, the last from 198.51.100.7" in caplog.text


def test_as_many_addresses_as_a_node_has_attachments_are_admitted(
    root: NodeRoot,
) -> None:
    """A member names an address of its own in each connector.

    One that the helper does not take would keep it from all the others: none is
    admitted after the next start, and no portal is closed.
    """
    longest = int(ipaddress.ip_address("fd00:1111:2222:3333:4444:5555:6666:7777"))
    hosts = [
        PortalHost(VOLUME, HOST.initiator, str(ipaddress.ip_address(longest + number)))
        for number in range(MAX_ROWS)
    ]
    root.sessions = []
    target(root).admit_all(hosts)
    taken, seconds = root.called["firewall.apply"]
    assert len(firewall_requests.doors(taken).addresses) == MAX_ROWS
    assert len(orjson.dumps(taken)) + frames.LARGE < frames.MAX_REQUEST
    # 9 s on two processors; a slow node may take ten times as long.
    assert seconds > 90


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("192.0.2.1/24", "without bits behind its prefix"),
        ("hosts.example.com", "such as 192.0.2.0/24"),
        ("", "such as 192.0.2.0/24"),
        ("::ffff:192.0.2.0/120", "IPv4 network"),
        ("fe80::%eth0/64", "such as 192.0.2.0/24"),
    ],
)
def test_a_network_that_would_admit_nobody_is_refused(
    root: NodeRoot, text: str, remedy: str
) -> None:
    with pytest.raises(InvalidValue, match=remedy) as refused:
        target(root, initiator_networks=["198.51.100.0/24", text])
    assert "initiator_networks" in str(refused.value)
