# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""firewall.*: its requests, the text of its rules, and which portals it takes."""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.errors import HelperRefused, InvalidValue
from lunshare.drivers.values import Portal
from lunshare.helper.firewall import firewall_requests, portal_rules
from lunshare.helper.firewall.firewall_verbs import FirewallVerbs
from lunshare.helper.firewall.portal_rules import Doors
from lunshare.helper.lio.portals import is_portal
from tests.unit.configfs_tree import Tree

ARGUMENTS = {
    "backend": "thin",
    "portals": [{"address": "192.0.2.1", "port": 3260}],
    "addresses": ["192.0.2.9"],
    "networks": ["198.51.100.0/24"],
}
HOST = ipaddress.ip_address("192.0.2.9")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path / "target", monkeypatch)


def doors(**changed: Any) -> Doors:
    return firewall_requests.doors(ARGUMENTS | changed)


def lines(doors: Doors, *others: str, most: int = 7) -> list[str]:
    return portal_rules.complete(doors, others, most).splitlines()


def rules(text: list[str], chain: str) -> list[str]:
    start = f"add rule inet lunshare {chain} "
    return [line.removeprefix(start) for line in text if line.startswith(start)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backend", "thin }"),
        ("backend", ""),
        ("backend", "x" * 65),
        ("portals", [{"address": "192.0.2.1", "port": 22}]),
        ("portals", [{"address": "192.0.2.1 }", "port": 3260}]),
        ("addresses", ["192.0.2.9; flush ruleset"]),
        ("addresses", ["192.0.2.9/24"]),
        ("addresses", ["fe80::1%eth0"]),
        ("addresses", [3221225993]),
        ("networks", ["192.0.2.1/24"]),
        ("networks", ["any"]),
        ("networks", ["10.0.0.0/8"] * 257),
    ],
)
def test_other_forms_are_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidValue, match=field):
        doors(**{field: value})


def test_overlapping_networks_are_one_element() -> None:
    wanted = doors(networks=["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"])
    elements = portal_rules.elements(wanted)
    assert elements["networks4-thin"] == ["10.0.0.0/8"]
    assert elements["networks6-thin"] == ["2001:db8::/32"]


def test_elements_are_those_of_the_request_and_nothing_else() -> None:
    assert portal_rules.elements(doors()) == {
        "portals4-thin": ["192.0.2.1 . 3260"],
        "hosts4-thin": ["192.0.2.9"],
        "networks4-thin": ["198.51.100.0/24"],
        "portals6-thin": [],
        "hosts6-thin": [],
        "networks6-thin": [],
    }


def test_a_new_connection_is_admitted_by_any_backend_before_one_refuses_it() -> None:
    first, *four = rules(lines(doors(), "other"), "input")[:7]
    assert first == "tcp flags & (fin | syn | rst | ack) != syn accept"
    assert four == [
        "ip daddr . tcp dport @portals4-other ip saddr @hosts4-other goto admitted",
        "ip daddr . tcp dport @portals4-other ip saddr @networks4-other goto admitted",
        "ip daddr . tcp dport @portals4-thin ip saddr @hosts4-thin goto admitted",
        "ip daddr . tcp dport @portals4-thin ip saddr @networks4-thin goto admitted",
        "ip daddr . tcp dport @portals4-other goto refused",
        "ip daddr . tcp dport @portals4-thin goto refused",
    ]


def test_who_is_admitted_is_bounded_in_rate_and_number() -> None:
    bounds = rules(lines(doors()), "admitted")
    assert bounds[:2] == [
        "update @rates4 { ip saddr limit rate over 20/second burst 64 packets } drop",
        "add @connections4 { ip saddr ct count over 7 } goto refused",
    ]
    assert bounds[-1] == "accept"


def test_without_a_bound_of_number_connections_are_not_tracked() -> None:
    assert "ct count" not in "\n".join(lines(doors(), most=0))


def test_no_other_table_is_named() -> None:
    for line in lines(doors(), "other"):
        assert " inet lunshare" in line
    text = portal_rules.without("thin", ["other"])
    assert all(" inet lunshare " in line for line in text.splitlines())
    assert portal_rules.without("thin", []) == "delete table inet lunshare\n"


def test_other_backends_keep_their_elements() -> None:
    changed = [
        line
        for line in lines(doors(), "other")
        if line.startswith(("flush set", "add element", "delete"))
    ]
    assert changed
    assert all("-thin" in line for line in changed)


def test_an_address_is_added_before_it_is_deleted() -> None:
    """The delete of a missing element would be refused."""
    element = "element inet lunshare hosts4-thin { 192.0.2.9 }\n"
    assert portal_rules.some_addresses("thin", [HOST], []) == f"add {element}"
    text = portal_rules.some_addresses("thin", [], [HOST])
    assert text == f"add {element}delete {element}"


def test_addresses_of_both_families_are_admitted_in_one_step_each() -> None:
    others = [ipaddress.ip_address(text) for text in ("192.0.2.10", "2001:db8::1")]
    assert portal_rules.some_addresses("thin", [HOST, others[1]], others[:1]) == (
        "add element inet lunshare hosts4-thin { 192.0.2.9, 192.0.2.10 }\n"
        "add element inet lunshare hosts6-thin { 2001:db8::1 }\n"
        "delete element inet lunshare hosts4-thin { 192.0.2.10 }\n"
    )


def test_names_of_sets_differ_as_names_of_backends_do() -> None:
    names = ["thin", "th in", "th.20.in", "th_in", "TH", 'a"{}', "a.b"]
    suffixes = {portal_rules.suffix(name) for name in names}
    assert len(suffixes) == len(names)
    assert not any(set('"{} ;\n') & set(suffix) for suffix in suffixes)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as service:
        service.bind(("127.0.0.1", 0))
        service.listen()
        yield service


def applied(verbs: FirewallVerbs, listener: socket.socket) -> None:
    """Ask for a firewall of the port."""
    address, port = listener.getsockname()
    portals = [{"address": address, "port": port}]
    verbs.apply(ARGUMENTS | {"portals": portals}, 1.0)


def portal_of(listener: socket.socket) -> Portal:
    return Portal(*listener.getsockname())


def test_a_port_of_another_service_gets_no_firewall(
    tree: Tree, listener: socket.socket
) -> None:
    """The directory of the targets has attributes too, and targets of others."""
    (tree.root / "iscsi/iqn.2003-01.org.example:other/tpgt_1/np").mkdir(parents=True)
    with pytest.raises(HelperRefused, match="a program of this node listens"):
        applied(FirewallVerbs(is_portal), listener)


def test_a_portal_of_the_target_is_in_use_and_gets_one(
    tree: Tree, listener: socket.socket
) -> None:
    portal = portal_of(listener)
    path = f"iscsi/iqn.2003-01.org.example:other/tpgt_1/np/{portal}"
    (tree.root / path).mkdir(parents=True)
    FirewallVerbs(is_portal)._need_portal(portal, 1.0)


def test_a_portal_that_comes_or_goes_meanwhile_is_no_other_service(
    listener: socket.socket,
) -> None:
    """The kernel listens before configfs shows a portal, and after it does not."""
    portal = portal_of(listener)
    seen: list[Portal] = []

    def comes(asked: Portal) -> bool:
        seen.append(asked)
        return len(seen) > 2

    def goes(_: Portal) -> bool:
        listener.close()
        return False

    FirewallVerbs(comes)._need_portal(portal, 10.0)
    assert seen == [portal] * 3
    FirewallVerbs(goes)._need_portal(portal, 10.0)


_WITHOUT_DESCRIPTORS = """
import contextlib, os, resource
from lunshare.drivers.errors import HelperBusy, Unsupported
from lunshare.helper.firewall import nftables
with contextlib.suppress(Unsupported, nftables.NftablesFailed):
    nftables.read("list tables")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with contextlib.suppress(OSError):
    while True:
        os.open(os.devnull, os.O_RDONLY)
try:
    nftables.read("list tables")
except HelperBusy as error:
    print(error)
"""


def test_without_a_free_descriptor_it_is_busy_and_not_unsupported() -> None:
    """Unsupported opens the portals; and the library itself would end the helper."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_DESCRIPTORS],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no free descriptor" in done.stdout
