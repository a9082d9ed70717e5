# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The LIO driver on a real kernel, with hosts that log in, read and write."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rtslib_fb import RTSRoot

from drivers.errors import DeadlineExceeded, TargetFailed
from drivers.helper.backstores import path_of
from drivers.targets.lio import LioTarget
from drivers.values import Auth, Disk, Export
from tests.system.lio_hosts import BLOCK, DATA_PROTECT, LoginRefused, Refused
from tests.system.lio_node import (
    CONFIGFS,
    Backing,
    HelperProcess,
    Later,
    Node,
    hanging,
    in_flight,
    initiator,
    run,
    target,
    wait_until,
)

pytestmark = pytest.mark.system

ONE, TWO = b"1" * BLOCK, b"2" * BLOCK
Make = Callable[[], Node]


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelperProcess]:
    process = HelperProcess(tmp_path_factory.mktemp("helper"))
    yield process
    process.stop()


@pytest.fixture(scope="module")
def driver(helper: HelperProcess) -> LioTarget:
    Path("/etc/target").mkdir(exist_ok=True)  # as systemd/lunshare.tmpfiles
    run("modprobe", "target_core_mod")
    made = target(helper)
    made.check()
    return made


@pytest.fixture(scope="module")
def backing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backing]:
    made = Backing(tmp_path_factory.mktemp("backing"))
    yield made
    made.close()


@pytest.fixture
def make(helper: HelperProcess, driver: LioTarget, backing: Backing) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def build() -> Node:
            node = Node(helper, driver, backing)
            stack.callback(node.close)
            return node

        yield build


@pytest.fixture
def node(make: Make) -> Node:
    return make()


def refused(node: Node, host: str, auth: Auth | None = None) -> bool:
    try:
        node.login(host, auth).logout()
    except LoginRefused:
        return True
    return False


def protected(call: Callable[..., object], *given: object) -> bool:
    """Whether the call is refused for the LUN is write-protected (07h/27h)."""
    with pytest.raises(Refused) as caught:
        call(*given)
    return (caught.value.key, caught.value.ascq) == (DATA_PROTECT, 0x2700)


# modes


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


def test_an_independent_judge_finds_nothing_writable(node: Node) -> None:
    node.apply(a="rw", b="ro")
    url = f"iscsi://127.0.0.1:3260/{node.iqn}/0"
    line = ["iscsi-test-cu", "-n", "-d", "-f", "-i", initiator("b")]
    done = subprocess.run(
        [*line, "-t", "SCSI.ReadOnly", url], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "asserts" in done.stdout


def test_write_access_is_given_to_a_live_session(node: Node) -> None:
    node.apply(a="ro")
    a = node.login("a")
    node.apply(a="rw")
    a.write(0, ONE)
    assert node.live() == {"a": "rw"}


def test_write_access_is_taken_and_the_session_ended(node: Node) -> None:
    node.apply(a="rw", b="rw")
    a, b = node.login("a"), node.login("b")
    node.apply(a="ro", b="rw")
    assert not a.alive
    assert b.alive
    assert protected(node.login("a").write, 0, ONE)
    assert node.live() == {"a": "ro", "b": "rw"}


# minimal difference


def test_hosts_that_are_right_see_nothing(node: Node) -> None:
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


def test_only_looks_at_no_other_host(node: Node) -> None:
    node.apply(a="rw")
    node.apply(only="b", b="ro")
    node.apply(only="c")
    assert node.live() == {"a": "rw", "b": "ro"}
    node.apply(only="a")
    assert node.live() == {"b": "ro"}


def test_a_persistent_reservation_outlives_changes_of_others(node: Node) -> None:
    node.apply(a="rw", b="rw")
    a = node.login("a")
    register = bytes([0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0])
    a.command(register, 2, 24, bytes(8) + b"lunshare" + bytes(8))
    node.apply(a="rw", c="ro")
    keys = a.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]), 1, 255)
    assert b"lunshare" in keys


def test_identity_is_the_volumes_own(node: Node) -> None:
    node.apply(a="rw")
    assert node.login("a").serial == node.id
    node.driver.remove(node.id)
    node.apply(a="rw")
    assert node.login("a").serial == node.id


# credentials and portals


def test_a_host_proves_itself_with_its_own_secret(node: Node) -> None:
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


def test_an_export_on_ipv6(helper: HelperProcess, node: Node) -> None:
    driver = target(helper, address="::1")
    driver.apply(node.export(a="rw"))
    assert node.login("a", portal="[::1]:3260").alive
    assert refused(node, "a")
    assert [each.name for each in (node.group / "np").iterdir()] == ["[::1]:3260"]


# what is not ours


def test_foreign_targets_are_neither_listed_nor_touched(node: Node) -> None:
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


def test_rtslib_reads_what_we_make(node: Node) -> None:
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
    (lun,) = group.luns
    store = lun.storage_object
    assert (store.plugin, store.udev_path) == ("block", node.disk.path)
    assert (store.name, store.wwn) == (node.name, node.id)


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


def test_a_link_to_another_disk_is_not_exported(make: Make) -> None:
    node, other = make(), make()
    Path("/dev/elsewhere").mkdir(exist_ok=True)
    link = Path("/dev/elsewhere") / node.name
    link.symlink_to(other.disk.path)
    try:
        wrong = Disk(node.id, str(link), node.disk.size)
        with pytest.raises(TargetFailed, match="device-mapper calls it"):
            node.driver.apply(Export(node.id, wrong, (node.connector("a", "rw"),)))
    finally:
        shutil.rmtree("/dev/elsewhere")


# half-made states, as a kill -9 leaves them


def _half_backstore(node: Node) -> None:
    """A backstore that is not enabled, and another without its identity."""
    node.driver.remove(node.id)
    from drivers.helper.backstores import _numbers

    path_number = next(iter(_numbers(node.id)))
    path = Path(path_of(node.id, f"iblock_{path_number}"))
    path.mkdir(parents=True)
    (path / "control").write_text(f"udev_path={node.disk.path}")


def _half_enabled_backstore(node: Node) -> None:
    _half_backstore(node)
    (path,) = CONFIGFS.glob(f"core/*/{node.name}")
    (path / "enable").write_text("1")


def _half_target(node: Node) -> None:
    node.driver.remove(node.id)
    node.group.mkdir(parents=True)


def _disabled(node: Node) -> None:
    (node.group / "enable").write_text("0")


def _no_lun(node: Node) -> None:
    for host in "ab":
        _no_mapping(node, host)
    (node.group / "lun/lun_0" / node.name).unlink()


def _no_mapping(node: Node, host: str = "a") -> None:
    _no_link(node, host)
    (node.acl(host) / "lun_0").rmdir()


def _no_link(node: Node, host: str = "a") -> None:
    (link,) = (
        each for each in (node.acl(host) / "lun_0").iterdir() if each.is_symlink()
    )
    link.unlink()


def _wide_open(node: Node) -> None:
    (node.group / "attrib/generate_node_acls").write_text("1")
    (node.group / "attrib/demo_mode_write_protect").write_text("0")
    (node.acl("b") / "lun_0/write_protect").write_text("0")


def _second_way(node: Node) -> None:
    extra = node.acl("b") / "lun_7"
    extra.mkdir()
    (extra / "link").symlink_to(node.group / "lun/lun_0")
    (extra / "write_protect").write_text("0")


def _other_path(node: Node) -> None:
    (node.backstore() / "udev_path").write_text("/dev/lunshare/other")


@pytest.mark.parametrize(
    "spoil",
    [
        _half_backstore,
        _half_enabled_backstore,
        _half_target,
        _disabled,
        _no_lun,
        _no_mapping,
        _no_link,
        _wide_open,
        _second_way,
        _other_path,
    ],
)
def test_whatever_is_there_becomes_what_is_wanted(
    node: Node, spoil: Callable[[Node], None]
) -> None:
    node.apply(a="rw", b="ro")
    spoil(node)
    assert node.apply(a="rw", b="ro")
    assert node.live() == {"a": "rw", "b": "ro"}
    node.login("a").write(0, ONE)
    assert protected(node.login("b").write, 0, TWO)
    assert refused(node, "c")
    assert not (node.acl("b") / "lun_7").exists()
    assert node.login("a").serial == node.id
    assert node.apply(a="rw", b="ro") == ()


def test_an_attach_does_not_wake_what_a_killed_remove_left(node: Node) -> None:
    node.apply(a="rw", b="rw")
    _disabled(node)
    node.apply(only="c", c="ro")
    assert node.live() == {"c": "ro"}


# closing while writes are under way, on a disk that hangs


def _write_under_way(node: Node, host: str) -> Later:
    session = node.login(host)
    node.suspend()
    write = Later(session.write, 0, ONE)
    wait_until(lambda: in_flight(node))
    return write


@pytest.mark.parametrize("wanted", [{}, {"a": "ro"}], ids=["close", "restrict"])
def test_a_closing_waits_for_the_writes(
    helper: HelperProcess, make: Make, wanted: dict[str, str]
) -> None:
    node, other = make(), make()
    node.apply(a="rw")
    other.apply(a="rw")
    _write_under_way(node, "a")
    with hanging(node):
        hasty = target(helper, deadline=1.0)
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(**wanted), only={initiator("a")})
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(**wanted), only={initiator("a")})
        assert node.live().get("a") != "rw"
        assert hasty.apply(other.export(a="rw", b="rw"))
        hasty.remove(other.id)
        hasty.apply(other.export(b="ro"))
        assert other.live() == {"b": "ro"}
        again = Later(node.driver.apply, node.export(**wanted), {initiator("a")})
        assert not again.done
    assert again.join() is None
    assert node.on_disk(0) == ONE
    assert node.live() == wanted
    assert refused(node, "a") == (not wanted)


def test_the_writes_of_a_dead_host_are_waited_for(node: Node) -> None:
    node.apply(a="rw", b="rw")
    program = ["qemu-io", "--image-opts", "-c", "write -P 49 0 4k", "-n"]
    options = f"driver=iscsi,transport=tcp,portal=127.0.0.1:3260,target={node.iqn}"
    options += f",lun=0,initiator-name={initiator('a')}"
    with hanging(node):
        dying = subprocess.Popen([*program, options], stdout=subprocess.DEVNULL)
        wait_until(lambda: in_flight(node))
        dying.kill()
        dying.wait()
        closing = Later(node.apply, "a")
        b = Later(node.login, "b")
        assert b.join() is None
        assert not closing.done
    assert closing.join() is None
    assert node.on_disk(0) == ONE
    assert node.live() == {"b": "rw"}


@pytest.mark.parametrize("wanted", [{}, {"a": "ro"}], ids=["close", "restrict"])
def test_a_helper_killed_in_a_closing_waits_again(
    tmp_path: Path, node: Node, wanted: dict[str, str]
) -> None:
    node.apply(a="rw")
    _write_under_way(node, "a")
    mortal = HelperProcess(tmp_path)
    with hanging(node):
        with pytest.raises(DeadlineExceeded):
            target(mortal, deadline=1.0).apply(node.export(**wanted))
        mortal.kill()
        hasty = target(node.helper, deadline=1.0)
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(**wanted))
        assert "rw" not in node.live().values()
        again = Later(node.driver.apply, node.export(**wanted))
        assert not again.done
    assert again.join() is None
    mortal.wait()
    assert node.on_disk(0) == ONE
    assert node.live() == wanted


def test_remove_waits_for_the_writes(helper: HelperProcess, node: Node) -> None:
    node.apply(a="rw")
    _write_under_way(node, "a")
    with hanging(node):
        with pytest.raises(DeadlineExceeded):
            target(helper, deadline=1.0).remove(node.id)
        assert refused(node, "a")
    node.driver.remove(node.id)
    assert node.on_disk(0) == ONE
    assert not node.group.exists()
    assert not list(CONFIGFS.glob(f"core/*/{node.name}"))
