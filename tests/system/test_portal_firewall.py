# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who is not attached reaches no portal: three attacks, from network namespaces."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import PortalHost
from tests.stands.waiting import until
from tests.system.lio_fixtures import backing, driver, helper
from tests.system.lio_node import Backing, HelperProcess, Node, initiator, run
from tests.system.lio_node import target as plain_target
from tests.system.raw_iscsi import RawSession

__all__ = ["backing", "driver", "helper"]
pytestmark = pytest.mark.system

ADDRESS, PORT = "10.99.0.1", 3271
PORTAL = f"{ADDRESS}:{PORT}"
#: Namespaces: the host of another volume, and nobody's. Each address ends in .2.
HOST, OUTSIDE = 1, 2
READ = bytes([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0])


def address(space: int) -> str:
    return f"10.99.{space}.2"


@pytest.fixture(scope="module", autouse=True)
def spaces() -> Iterator[None]:
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    for space in (HOST, OUTSIDE):
        name, inside = f"lun-test-{space}", ("ip", "-n", f"lun-test-{space}")
        run("ip", "netns", "add", name)
        peer = ("type", "veth", "peer", "name", "veth0", "netns", name)
        run("ip", "link", "add", f"lun-veth{space}", *peer)
        run("ip", "address", "add", f"10.99.{space}.1/24", "dev", f"lun-veth{space}")
        run("ip", "link", "set", f"lun-veth{space}", "up")
        run(*inside, "address", "add", f"{address(space)}/24", "dev", "veth0")
        run(*inside, "link", "set", "veth0", "up")
        run(*inside, "route", "add", "default", "via", f"10.99.{space}.1")
    yield
    for space in (HOST, OUTSIDE):
        run("ip", "netns", "delete", f"lun-test-{space}")
    run("ip", "address", "delete", f"{ADDRESS}/32", "dev", "lo")


def at(*addresses: str) -> list[PortalHost]:
    """Hosts at these addresses, of some volume."""
    return [PortalHost("", f"iqn.1994-05.com.example:{one}", one) for one in addresses]


def guarded(helper: HelperProcess, name: str = "test", **options: object) -> LioTarget:
    plain = plain_target(helper, address=ADDRESS, port=PORT)
    options = {**plain.options, "portal_firewall": True, **options}
    return LioTarget(name, options, helper.client())


@pytest.fixture
def wall(helper: HelperProcess, driver: LioTarget) -> Iterator[LioTarget]:
    """The driver under test: only this node and HOST are admitted.

    The table has another backend, too, as on a node that is installed.
    """
    guarded(helper, "other", target_port=3273).admit_all(())
    created = guarded(helper)
    created.admit_all(at(ADDRESS, address(HOST)))
    yield created
    for name in ("test", "other"):
        guarded(helper, name, portal_firewall=False).admit_all(())


@pytest.fixture
def node(helper: HelperProcess, wall: LioTarget, backing: Backing) -> Iterator[Node]:
    created = Node(helper, wall, backing)
    created.apply(a="rw")
    yield created
    created.close()


@contextlib.contextmanager
def attack(space: int, what: str, count: int = 1, *names: str) -> Iterator[int]:
    """How many connections the attack has; they are held inside the ``with``."""
    words = ["ip", "netns", "exec", f"lun-test-{space}", sys.executable]
    words += ["-m", "tests.system.portal_attacks", what, ADDRESS, str(PORT)]
    with subprocess.Popen(
        [*words, str(count), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        yield int(process.stdout.readline())


def session(node: Node) -> RawSession:
    return RawSession(initiator("a"), node.iqn, PORTAL)


def reads(victim: RawSession) -> str:
    """The answer to a READ, after the unit attentions of a new session."""
    answers = (victim.command(READ, "R", bytes(512)) for _ in range(4))
    return next((text for text in answers if not text.startswith("06/")), "none")


def login_seconds(node: Node) -> float:
    began = time.monotonic()
    node.login("b", portal=PORTAL).close()
    return time.monotonic() - began


def test_from_an_address_outside_no_attack_reaches_the_target(node: Node) -> None:
    node.apply(a="rw", b="ro")
    victim = session(node)
    assert reads(victim) == "GOOD"
    names = node.iqn, initiator("a")
    for what, count, more in (
        ("reinstate", 1, names),
        ("idle", 4, ()),
        ("discovery", 200, ()),
    ):
        with attack(OUTSIDE, what, count, *more) as opened:
            assert opened == 0, what
            assert login_seconds(node) < 5
            assert reads(victim) == "GOOD", what
    victim.close()


def test_who_is_refused_is_counted_and_shown(node: Node, wall: LioTarget) -> None:
    wall.admit_all(at(ADDRESS, address(HOST)))
    assert wall.portal_guard
    before = wall.portal_guard.refused
    with attack(OUTSIDE, "idle", 3) as opened:
        assert opened == 0
    wall.admit_all(at(ADDRESS, address(HOST)))
    assert wall.portal_guard.open == ""
    assert wall.portal_guard.refused == before + 3
    assert f"{address(OUTSIDE)} to {ADDRESS}" == wall.portal_guard.sources[0]


def test_a_host_that_is_here_already_is_not_locked_out_by_an_upgrade(
    node: Node, wall: LioTarget, helper: HelperProcess
) -> None:
    guarded(helper, portal_firewall=False).admit_all(())
    victim = session(node)
    host = PortalHost(node.id, initiator("a"), address(HOST))
    upgraded = guarded(helper, portal_firewall=None)
    try:
        assert upgraded.admit_all([host]) == ()
        assert upgraded.portal_guard
        assert f"a session from {ADDRESS}" in upgraded.portal_guard.open
        with attack(OUTSIDE, "idle") as opened:
            assert opened == 1
    finally:
        victim.close()
    named = guarded(helper, portal_firewall=None, initiator_networks=[f"{ADDRESS}/32"])
    assert named.admit_all([host])
    with attack(OUTSIDE, "idle") as opened:
        assert opened == 0


def test_without_the_firewall_the_same_login_ends_the_session(
    node: Node, helper: HelperProcess
) -> None:
    victim = session(node)
    guarded(helper, portal_firewall=False).admit_all(())
    with attack(OUTSIDE, "reinstate", 1, node.iqn, initiator("a")) as opened:
        assert opened == 1
        assert reads(victim) != "GOOD"
    victim.close()


def test_an_address_is_admitted_and_not_any_more(node: Node, wall: LioTarget) -> None:
    assert wall.admit(address(OUTSIDE), True)
    with attack(OUTSIDE, "idle") as opened:
        assert opened == 1
        assert wall.admit(address(OUTSIDE), False)
        with attack(OUTSIDE, "idle") as more:
            assert more == 0


def test_a_login_with_guessed_names_ends_no_session(node: Node) -> None:
    victim = session(node)
    known, guessed = initiator("a"), "iqn.1994-05.com.example:guess"
    other = node.iqn[:-1] + ("0" if node.iqn[-1] != "0" else "1")
    for names in ((other, known), (node.iqn, guessed)):
        with attack(HOST, "reinstate", 1, *names) as opened:
            assert opened == 0, names
            assert reads(victim) == "GOOD", names
    victim.close()


def test_an_address_costs_the_same_beside_ten_thousand(
    wall: LioTarget, helper: HelperProcess
) -> None:
    """In processor time of the helper: a busy machine makes no difference."""
    others = [f"10.{60 + n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(10_000)]
    seconds = {}
    for count in (10, 10_000):
        wall.admit_all(at(ADDRESS, *others[:count]))
        began = helper.processor_seconds()
        for _ in range(100):
            assert wall.admit(address(OUTSIDE), True)
            assert wall.admit(address(OUTSIDE), False)
        seconds[count] = helper.processor_seconds() - began
    print(f"\nprocessor time of 100 times admit and close, by elements: {seconds}")
    assert seconds[10_000] < 2 * seconds[10] + 0.1, seconds


def test_a_network_is_admitted(node: Node, helper: HelperProcess) -> None:
    wall = guarded(helper, initiator_networks=["10.99.2.0/24"])
    assert wall.admit_all(at(ADDRESS))
    with attack(OUTSIDE, "idle") as outside, attack(HOST, "idle") as host:
        assert (outside, host) == (1, 0)


def test_one_host_has_a_bounded_rate_and_leaves_the_logins_of_others(
    node: Node,
) -> None:
    node.apply(a="rw", b="ro")
    victim = session(node)
    with attack(HOST, "discovery", 200) as opened:
        assert 0 < opened <= 200
        assert login_seconds(node) < 5
        assert reads(victim) == "GOOD"
    victim.close()


def test_a_table_that_was_deleted_or_changed_is_found_and_made_again(
    node: Node, wall: LioTarget, helper: HelperProcess
) -> None:
    wanted = at(ADDRESS, address(HOST))
    run("nft", "add", "table", "inet", "foreign")
    run("nft", "add", "chain", "inet", "foreign", "mine")
    victim = session(node)
    try:
        assert wall.admit_all(wanted) == ()
        run("nft", "flush", "table", "inet", "lunshare")
        assert len(wall.admit_all(wanted)) == 1
        with attack(OUTSIDE, "idle") as opened:
            assert opened == 0
        run("nft", "delete", "table", "inet", "lunshare")
        assert not wall.admit(address(HOST), True)
        assert wall.admit_all(wanted)
        run("nft", "insert", "rule", "inet", "lunshare", "input", "accept")
        assert len(wall.admit_all(wanted)) == 1
        run("nft", "add", "element", "inet", "lunshare", "hosts4-test", "{ 10.99.2.2 }")
        assert len(wall.admit_all(wanted)) == 1
        with attack(OUTSIDE, "idle") as opened:
            assert opened == 0
        assert reads(victim) == "GOOD"
        assert "chain mine" in run("nft", "list", "ruleset")
    finally:
        run("nft", "delete", "table", "inet", "foreign")
        victim.close()


def test_sets_of_another_form_are_made_again_for_each_backend(
    wall: LioTarget, helper: HelperProcess
) -> None:
    """As an earlier version may have left them; of each backend one is wrong."""
    run("nft", "delete", "table", "inet", "lunshare")
    run("nft", "add", "table", "inet", "lunshare")
    for name in ("test", "other"):
        for kind, form in (
            ("portals4", "ipv4_addr . inet_service"),
            ("hosts4", "mark"),
        ):
            words = f"inet lunshare {kind}-{name} {{ type {form}; }}"
            run("nft", "add", "set", *words.split())
    other = guarded(helper, "other", target_port=3273, portal_firewall=None)
    wanted = at(ADDRESS, address(HOST))
    assert wall.admit_all(wanted)
    assert other.admit_all(())
    assert wall.admit_all(wanted) == other.admit_all(()) == ()
    with attack(OUTSIDE, "idle") as opened:
        assert opened == 0


def test_a_flushed_ruleset_is_closed_again_over_any_session(
    node: Node, wall: LioTarget, helper: HelperProcess
) -> None:
    default = guarded(helper, portal_firewall=None)
    hosts = [PortalHost(node.id, initiator("a"), address(HOST))]
    assert default.admit_all([*hosts, *at(ADDRESS)]) == ()  # it is closed already
    victim = session(node)
    run("nft", "flush", "ruleset")
    with attack(OUTSIDE, "idle") as opened:
        assert opened == 1
    assert not default.admit(address(HOST), True)
    assert default.admit_all(hosts)
    with attack(OUTSIDE, "idle") as opened:
        assert opened == 0
    assert reads(victim) == "GOOD"
    victim.close()


def test_a_killed_helper_leaves_the_table_as_it_was(
    node: Node, helper: HelperProcess
) -> None:
    helper.kill()
    helper.wait()
    with attack(OUTSIDE, "idle") as opened:
        assert opened == 0
    helper.start()
    node.helper, node.driver = helper, guarded(helper)
    assert node.driver.admit_all(at(ADDRESS, address(HOST))) == ()


@contextlib.contextmanager
def without_library() -> Iterator[None]:
    """As on a node without the package libnftables1."""
    (library,) = Path("/usr/lib").glob("*/libnftables.so.1")
    run("mount", "--bind", "/dev/null", str(library))
    yield
    run("umount", str(library))


@contextlib.contextmanager
def without_tables() -> Iterator[None]:
    """As on a kernel that has netfilter, and not nf_tables."""
    settings = Path("/etc/modprobe.d/lunshare-test.conf")
    settings.write_text("install nf_tables /bin/false\n")
    until(tables_are_unloaded)
    yield
    settings.unlink()


def tables_are_unloaded() -> bool:
    """Remove those of its modules that nobody uses; whether there was none."""
    subprocess.run(["nft", "flush", "ruleset"], check=False, capture_output=True)
    modules = map(str.split, Path("/proc/modules").read_text().splitlines())
    tables = [words for words in modules if words[0].startswith(("nft_", "nf_tables"))]
    for name, _, users, *_ in tables:
        if users == "0":
            subprocess.run(["rmmod", name], check=False, capture_output=True)
    return not tables


@contextlib.contextmanager
def own_helper(directory: Path) -> Iterator[HelperProcess]:
    """It has not loaded the library yet."""
    process = HelperProcess(directory)
    yield process
    process.stop()


@pytest.mark.parametrize("lacking", [without_library, without_tables])
def test_a_node_without_nftables_says_so_and_attaches(
    lacking: Callable[[], AbstractContextManager[None]],
    driver: LioTarget,
    backing: Backing,
    tmp_path: Path,
) -> None:
    """But where the firewall is demanded, the backend is down."""
    with lacking(), own_helper(tmp_path) as own:
        default = guarded(own, portal_firewall=None)
        assert not default.admit(ADDRESS, True)  # so that admit_all is called
        assert default.admit_all(at(ADDRESS)) == ()
        assert default.portal_guard
        assert "is not supported" in default.portal_guard.open
        with contextlib.closing(Node(own, default, backing)) as node:
            node.apply(a="rw")
            assert node.login("a", portal=PORTAL).read(0)
        assert guarded(own, portal_firewall=False).admit_all(()) == ()
        with pytest.raises(Misconfigured, match="portal_firewall = true"):
            guarded(own).check()
