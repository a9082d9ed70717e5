# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The LIO driver on a real kernel, with hosts that log in, read and write."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from pathlib import Path

import pytest
from rtslib_fb import RTSRoot

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.values import Auth, Disk, Export
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, TWO, Make, protected, refused
from tests.system.lio_hosts import Refused
from tests.system.lio_node import (
    CONFIGFS,
    PORT,
    HelperProcess,
    Later,
    Node,
    initiator,
    target,
)
from tests.system.raw_iscsi import RawSession

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_TURNS = 25
_OTHER_PORT = PORT + 2
_LOGIN_TIMEOUT = 15  # TA_LOGIN_TIMEOUT (drivers/target/iscsi)

# Modes


def test_each_host_does_what_its_mode_allows(node: Node) -> None:
    node.apply(a="rw", b="ro")
    a, b = node.login("a"), node.login("b")
    a.write(0, ONE)
    assert b.read(0) == ONE
    assert b.write_protected
    assert not a.write_protected
    assert protected(b.write, 0, TWO)
    assert a.read(0) == ONE
    assert refused(node, "c")


def test_a_read_only_host_cannot_write_by_other_commands(node: Node) -> None:
    node.apply(a="rw", b="ro")
    a, b = node.login("a"), node.login("b")
    a.write(0, ONE)
    unmap = bytes([0, 22, 0, 16, 0, 0, 0, 0, *bytes(8), 0, 0, 0, 1, 0, 0, 0, 0])
    write_same = bytes([0x93, 8, *bytes(8), 0, 0, 0, 1, 0, 0])
    with pytest.raises(Refused):
        b.command(bytes([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]), 2, 24, unmap)
    with pytest.raises(Refused):
        b.command(write_same)
    assert a.read(0) == ONE


def test_change_to_rw_needs_a_new_session(node: Node) -> None:
    node.apply(a="ro", b="ro")
    a, b = node.login("a"), node.login("b")
    node.apply(a="rw", b="ro")
    assert not a.alive
    assert b.alive
    node.login("a").write(0, ONE)
    assert node.live() == {"a": "rw", "b": "ro"}


def test_change_to_ro_ends_the_session(node: Node) -> None:
    node.apply(a="rw", b="rw")
    a, b = node.login("a"), node.login("b")
    node.apply(a="ro", b="rw")
    assert not a.alive
    assert b.alive
    assert protected(node.login("a").write, 0, ONE)
    assert node.live() == {"a": "ro", "b": "rw"}


# The smallest difference


def test_hosts_with_the_wanted_access_are_not_disturbed(node: Node) -> None:
    node.apply(a="rw", b="ro", c="rw")
    a, b = node.login("a"), node.login("b")
    before = [node.acl(host).stat().st_ino for host in "ab"]
    node.apply(a="rw", b="ro", d="rw")
    node.apply(only="d")
    assert node.apply(a="rw", b="ro") == ()
    assert [node.acl(host).stat().st_ino for host in "ab"] == before
    assert a.alive
    assert b.alive
    assert node.live() == {"a": "rw", "b": "ro"}


def test_apply_with_only_does_not_read_other_hosts(node: Node) -> None:
    node.apply(a="rw")
    node.apply(only="b", b="ro")
    node.apply(only="c")
    assert node.live() == {"a": "rw", "b": "ro"}
    node.apply(only="a")
    assert node.live() == {"b": "ro"}


def test_persistent_reservation_survives_changes_of_other_hosts(node: Node) -> None:
    node.reservations = True
    node.apply(a="rw", b="rw")
    a = node.login("a")
    register = bytes([0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0])
    a.command(register, 2, 24, bytes(8) + b"lunshare" + bytes(8))
    node.apply(a="rw", c="ro")
    keys = a.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]), 1, 255)
    assert b"lunshare" in keys


def test_identity_belongs_to_the_volume(node: Node) -> None:
    node.apply(a="rw")
    assert node.login("a").serial == node.id
    node.driver.remove(node.id)
    node.apply(a="rw")
    assert node.login("a").serial == node.id


# Credentials and portals


def test_host_authenticates_with_its_own_secret(node: Node) -> None:
    keys = {host: Auth(f"user-{host}", f"secret-of-{host}") for host in "ab"}
    node.driver.apply(
        Export(
            node.id,
            node.disk,
            tuple(node.connector(host, "rw", key) for host, key in keys.items()),
        )
    )
    assert node.login("a", keys["a"]).alive
    assert refused(node, "a")
    assert refused(node, "a", keys["b"])
    assert not refused(node, "b", keys["b"])


@pytest.mark.parametrize("first", ["0x", "0X", "0b", "0B"])
def test_chap_name_that_reads_as_a_number_is_refused(node: Node, first: str) -> None:
    """Therefore lunshare never creates such a name; with a letter in front it works."""
    for name, comes_in in ((f"{first}eMc3", False), (f"a{first}eMc3", True)):
        key = Auth(name, f"{first}secret-of-a")
        node.driver.apply(Export(node.id, node.disk, (node.connector("a", "rw", key),)))
        assert refused(node, "a", key) != comes_in


def test_alias_that_a_host_gives_is_not_the_kernels_text(node: Node) -> None:
    """A host could show another address, and end the wait for its writes."""
    node.apply(a="rw")
    fake = "LIO Session ID: 0   Address 203.0.113.9 TCP  StatSN: 0x00000004"
    keys = [f"InitiatorAlias=x\n{fake}"]
    with contextlib.closing(RawSession(initiator("a"), node.iqn, PORTAL, keys)):
        # The last answer of a login is sent before its session is shown (7.2).
        until(lambda: fake in (node.acl("a") / "info").read_text())
        info = (node.acl("a") / "info").read_text()
        assert info.index(fake) < info.rindex("LIO Session ID: ")
        live = [each for each in node.driver.observe() if each.volume_id == node.id]
        (host,) = live[0].connectors
        assert len(host.addresses) == 1
        assert "203.0.113.9" not in host.addresses
        node.apply(a="ro")
        assert "No active iSCSI Session" in (node.acl("a") / "info").read_text()


def test_export_works_on_ipv6(helper: HelperProcess, node: Node) -> None:
    driver = target(helper, address="::1")
    driver.apply(node.export(a="rw"))
    assert node.login("a", portal=f"[::1]:{PORT}").alive
    assert refused(node, "a")
    assert [each.name for each in (node.group / "np").iterdir()] == [f"[::1]:{PORT}"]


def test_portal_is_created_while_the_last_of_its_address_is_removed(
    helper: HelperProcess, make: Make
) -> None:
    def turns(node: Node) -> None:
        driver = target(helper, port=3262)
        for _ in range(_TURNS):
            driver.apply(node.export(a="rw"))
            driver.remove(node.id)

    under_way = [Later(turns, make()) for _ in range(3)]
    assert [each.join() for each in under_way] == [None] * 3


# Foreign targets


def test_a_silent_connection_delays_logins_at_its_own_port_only(
    helper: HelperProcess, make: Make
) -> None:
    here, there = make(), make()
    there.driver = target(helper, port=_OTHER_PORT)
    seconds = []
    for node in (here, there):
        node.apply(a="rw")
    with socket.create_connection(("127.0.0.1", PORT)):
        for node, port in ((there, _OTHER_PORT), (here, PORT)):
            began = time.monotonic()
            node.login("a", portal=f"127.0.0.1:{port}")
            seconds.append(time.monotonic() - began)
    assert seconds[0] < _LOGIN_TIMEOUT / 2 < seconds[1], seconds


def test_foreign_targets_are_neither_listed_nor_changed(node: Node) -> None:
    foreign = CONFIGFS / "iscsi/iqn.2003-01.org.example:foreign"
    (foreign / "tpgt_1/acls" / initiator("a")).mkdir(parents=True)
    try:
        node.apply(a="rw")
        found = [export.volume_id for export in node.driver.observe()]
        node.driver.remove(node.id)
        assert found == [node.id]
        assert (foreign / "tpgt_1/acls" / initiator("a")).is_dir()
    finally:
        (foreign / "tpgt_1/acls" / initiator("a")).rmdir()
        (foreign / "tpgt_1").rmdir()
        foreign.rmdir()


# rtslib asks pyudev for the size of a device in an old way.
@pytest.mark.filterwarnings("ignore:Will be removed in 1.0:DeprecationWarning")
def test_rtslib_reads_the_export(node: Node) -> None:
    node.apply(a="rw", b="ro")
    root = RTSRoot()
    (found,) = (each for each in root.targets if each.wwn == node.iqn)
    (group,) = found.tpgs
    assert group.enable
    acls = {acl.node_wwn: acl for acl in group.node_acls}
    modes = {
        name: [lun.write_protect for lun in acl.mapped_luns]
        for name, acl in acls.items()
    }
    assert modes == {initiator("a"): [False], initiator("b"): [True]}
    stores = {lun.lun: lun.storage_object for lun in group.luns}
    own = int((node.acl("a") / "lun_0/lun").resolve().name.removeprefix("lun_"))
    assert {n: (each.plugin, each.name) for n, each in stores.items()} == {
        0: ("block", node.name),
        1: ("fileio", f"{node.name}-readers"),
        own: ("block", node.name),
    }
    for store in stores.values():
        assert (store.udev_path, store.wwn) == (node.disk.path, node.id)
        # What "targetcli saveconfig" and "cinder-rtstool save" write for the node.
        assert store.dump()["dev"] == node.disk.path
        assert store.size == node.disk.size


@pytest.mark.parametrize(
    "path",
    [
        "/dev/loop0",
        "/dev/lunshare/../loop0",
        "/dev/mapper/lunshare-lunshare--pool",
        "/dev/null",
    ],
)
def test_only_the_volumes_own_disk_is_exported(node: Node, path: str) -> None:
    wrong = Disk(node.id, path, node.disk.size)
    with pytest.raises(TargetFailed):
        node.driver.apply(Export(node.id, wrong, (node.connector("a", "rw"),)))
    assert node.live() == {}


def test_link_to_another_disk_is_not_exported(make: Make) -> None:
    node, other = make(), make()
    Path("/dev/lunshare-elsewhere").mkdir(exist_ok=True)
    link = Path("/dev/lunshare-elsewhere") / node.name
    link.symlink_to(other.disk.path)
    try:
        wrong = Disk(node.id, str(link), node.disk.size)
        with pytest.raises(TargetFailed, match="device-mapper calls it"):
            node.driver.apply(Export(node.id, wrong, (node.connector("a", "rw"),)))
    finally:
        shutil.rmtree("/dev/lunshare-elsewhere")


# Sessions


def test_all_sessions_of_a_host_are_counted_as_the_kernel_counts_them(
    node: Node,
) -> None:
    node.apply(a="rw", b="ro")
    of_all = Path(node.group).parent / "fabric_statistics/iscsi_instance/sessions"
    begun: list[RawSession] = []
    seen = []
    for host, number in (("a", 1), ("a", 2), ("b", 1)):
        begun.append(RawSession(initiator(host), node.iqn, PORTAL, number=number))
        # The kernel counts it after its answer to the login.
        until(lambda: int(of_all.read_text()) == len(begun))
        seen.append(_sessions(node))
    assert seen == [{"a": 1, "b": 0}, {"a": 2, "b": 0}, {"a": None, "b": None}]
    begun[0].close()
    until(lambda: _sessions(node) == {"a": 1, "b": 1})
    for session in begun:
        session.close()
    until(lambda: _sessions(node) == {"a": 0, "b": 0})


def _sessions(node: Node) -> dict[str, int | None]:
    live = node.driver.observe_volume(node.id)
    assert live
    return {c.initiator.rpartition("-")[2]: c.sessions for c in live.connectors}
