# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the daemon's user can not reach through the helper, on real LVM."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.errors import DiskBusy, HelperRefused, TargetFailed
from lunshare.drivers.protocol.export_paths import double_hyphens
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, group, root
from tests.system.units import systemctl

__all__ = ["group", "root"]
pytestmark = pytest.mark.system

ELSEWHERE = f"elsewhere-{os.getpid()}"
MIB = 1024**2


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """A disk of a volume group that helper.conf does not name."""
    store = tmp_path / "store"
    with store.open("wb") as file:
        file.truncate(32 * MIB)
    loop = run("losetup", "--find", "--show", str(store)).strip()
    run("vgcreate", "-qq", "--setautoactivation", "n", ELSEWHERE, loop)
    yield loop
    run("vgremove", "-qq", "--force", "--yes", ELSEWHERE)
    run("losetup", "--detach", loop)


@pytest.fixture
def created() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        run("lvremove", "-qq", "--yes", f"{GROUP}/{name}")


def volume(created: list[str], prefix: str = "") -> str:
    """The id of a logical volume with a volume's name behind ``prefix``."""
    identity = str(uuid.uuid4())
    name = f"{prefix}volume-{identity}"
    run("lvcreate", "-qq", "--yes", "-Wn", "-L4m", "-n", name, GROUP)
    created.append(name)
    return identity


def disk(identity: str, path: str) -> dict[str, Any]:
    return {"volume_id": identity, "path": path, "size": 4 * MIB, "kind": "block"}


def test_disk_of_another_group_is_not_reported(root: Root, elsewhere: str) -> None:
    own = run("vgs", "--noheadings", "-o", "pv_name", GROUP).strip()
    assert root.call("lvm.commit", device=own)
    with pytest.raises(HelperRefused, match=f"its volume group is {ELSEWHERE}"):
        root.call("lvm.commit", device=elsewhere)


def test_foreign_volume_is_refused_under_every_name(
    root: Root, created: list[str]
) -> None:
    """The name x-volume-ID ends like a volume's in /dev/mapper."""
    identity, own = volume(created, "x-"), volume(created)
    path = (
        f"/dev/mapper/{double_hyphens(GROUP)}-x--{double_hyphens(f'volume-{identity}')}"
    )
    assert Path(path).is_block_device()
    host = {
        "initiator": "iqn.1994-05.com.example:host1",
        "mode": "rw",
        "attachment_id": "a",
        "auth": None,
    }
    asked: dict[str, Any] = {
        "volume_id": identity,
        "connectors": [host],
        "portals": [],
        "only": None,
        "reservations": False,
    }
    exported = {"path": path, "size": 4 * MIB, "kind": "block"}
    with pytest.raises(TargetFailed):
        root.call("lio.apply", disk=exported, **asked)
    mine = disk(own, f"/dev/{GROUP}/volume-{own}")
    for source, target in ((disk(identity, path), mine), (mine, disk(identity, path))):
        with pytest.raises(TargetFailed):
            root.call("disk.copy", source=source, target=target)


def test_disk_in_use_is_neither_read_nor_written(
    root: Root, created: list[str]
) -> None:
    both = [
        disk(each, f"/dev/{GROUP}/volume-{each}")
        for each in (volume(created), volume(created))
    ]
    held = os.open(both[0]["path"], os.O_RDONLY | os.O_EXCL)  # as a mount does
    try:
        for source, target in (both, both[::-1]):
            with pytest.raises(DiskBusy):
                root.call("disk.copy", source=source, target=target)
    finally:
        os.close(held)
    root.call("disk.copy", source=both[0], target=both[1])


@contextlib.contextmanager
def changing(path: str, *devices: str) -> Iterator[None]:
    """The link at ``path`` leads to one device after the other, as stale ones do."""
    before, ended = os.readlink(path), threading.Event()

    def change() -> None:
        for device in itertools.cycle(devices):
            os.symlink(device, f"{path}.next")
            os.rename(f"{path}.next", path)
            if ended.wait(0.03):
                break
        os.symlink(before, f"{path}.next")
        os.rename(f"{path}.next", path)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_device_that_gets_the_path_after_the_check_is_not_copied(
    root: Root, created: list[str]
) -> None:
    """The open waits while the disk is busy, and its number may be another's then."""
    both = [
        disk(each, f"/dev/{GROUP}/volume-{each}")
        for each in (volume(created), volume(created))
    ]
    foreign = os.path.realpath(f"/dev/{GROUP}/x-volume-{volume(created, 'x-')}")
    Path(foreign).write_bytes(b"secret" * 1000)
    own = os.path.realpath(both[0]["path"])
    held = os.open(own, os.O_RDONLY | os.O_EXCL)
    try:
        with changing(both[0]["path"], own, foreign):
            for _ in range(10):
                with pytest.raises((DiskBusy, TargetFailed)):
                    root.call("disk.copy", source=both[0], target=both[1])
    finally:
        os.close(held)
    assert b"secret" not in Path(both[1]["path"]).read_bytes()


def test_installed_files_belong_to_root_and_units_have_limits() -> None:
    """Only root and the daemon can read the file that may have passwords."""
    conf = Path("/etc/lunshare/lunshare.conf")
    assert (conf.group(), conf.owner()) == ("lunshare", "root")
    assert stat.S_IMODE(conf.stat().st_mode) == 0o640
    served = Path("/etc/lunshare/helper.conf")
    assert (stat.S_IMODE(served.stat().st_mode), served.owner()) == (0o644, "root")
    claims = Path("/run/lunshare/claims")
    assert (stat.S_IMODE(claims.stat().st_mode), claims.owner()) == (0o700, "lunshare")
    shown = systemctl("show", "lunshare-helper", "-p", "MemoryMax", "-p", "TasksMax")
    assert set(shown.split()) == {f"MemoryMax={2 * 1024**3}", "TasksMax=1024"}


def test_the_memory_guard_comes_before_other_programs() -> None:
    """For the processor, and it is among the last that the kernel kills."""
    shown = systemctl("show", "lunshare-helper", "-p", "MainPID", "--value")
    helper = Path("/proc") / shown.strip()
    assert (helper / "oom_score_adj").read_text() == "-900\n"
    threads = [int(thread.name) for thread in (helper / "task").iterdir()]
    assert os.SCHED_FIFO in map(os.sched_getscheduler, threads)
    assert os.sched_getscheduler(int(helper.name)) == os.SCHED_OTHER


def test_first_helper_conf_names_the_groups_of_lunshare_conf(tmp_path: Path) -> None:
    script = Path("systemd/install").read_text()
    functions = script[
        script.index("named() {") : script.index("install -d -m 0755 /etc")
    ]
    conf = tmp_path / "lunshare.conf"
    conf.write_text("[a]\nvolume_group = one\n[b]\n  volume_group=two\n[c]\n#x = y\n")
    text = functions.replace("/etc/lunshare/lunshare.conf", str(conf))
    written = run("sh", "-euc", f"share=.\n{text}\nfirst_helper_conf")
    sample = Path("etc/helper.conf.sample").read_text()
    wanted = sample.replace("volume_groups = lunshare\n", "volume_groups = one two\n")
    assert written == wanted != sample
