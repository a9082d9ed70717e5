# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What lvm.commit opens and returns, which files share.manage accepts, and whose bytes
the node reads."""

from __future__ import annotations

import ctypes
import fnmatch
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.errors import DriverError, HelperRefused, Unsupported
from lunshare.helper.copying import CopyVerbs
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.lvm import headers
from lunshare.helper.lvm.headers import HeaderVerbs
from lunshare.helper.mounts import Mounts
from lunshare.helper.nfs.share_verbs import ShareVerbs
from lunshare.helper.served import NotServed, Served
from tests.conformance.directory_shares import Directories
from tests.unit.test_helper_headers import disk

POINT = "0" * 32
_IN_OPEN = 0x20  # linux/inotify.h; opening with O_PATH is none


@contextmanager
def opened(path: Path) -> Iterator[list[bytes]]:
    """Collects the events of opening it."""
    libc, events = ctypes.CDLL(None, use_errno=True), []  # type: ignore[var-annotated]
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert libc.inotify_add_watch(watch, bytes(path), _IN_OPEN) >= 0
    try:
        yield events
    finally:
        try:
            events.append(os.read(watch, 4096))
        except BlockingIOError:
            pass
        finally:
            os.close(watch)


def test_watch_notices_an_open(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with opened(tmp_path / "file") as events:
        os.close(os.open(tmp_path / "file", os.O_RDONLY))
    assert events


def test_only_block_devices_are_opened(tmp_path: Path) -> None:
    """Opening /dev/watchdog starts it, and closing a tape winds it back."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("fifo", "file", "link"):
        refused = pytest.raises(DriverError, match="it is not a block device")
        with opened(tmp_path / name) as events, refused:
            HeaderVerbs(Served())._read(str(tmp_path / name))
        assert not events, name


def test_header_of_another_group_is_not_returned(tmp_path: Path) -> None:
    file = disk(tmp_path / "disk", [8192], (512, 1000, 7))
    found = HeaderVerbs(Served(groups=("a-group",))).commit_of("sda", file)
    assert found == {"offset": 512, "size": 1000, "checksum": 7}
    with pytest.raises(HelperRefused, match="its volume group is a-group"):
        HeaderVerbs(Served(groups=("a-grou",))).commit_of("sda", file)


@pytest.mark.parametrize("area", [2**63, 2**64 - 4096, 2**63 - 8192])
def test_header_with_an_offset_beyond_the_disk_is_ignored(
    tmp_path: Path, area: int
) -> None:
    file = disk(tmp_path / "disk", [8192])
    data = bytearray((tmp_path / "disk").read_bytes())
    data[616:624] = area.to_bytes(8, "little")
    (tmp_path / "disk").write_bytes(data)

    assert headers.commit(file) is None


def test_mount_path_that_is_not_utf8_is_accepted(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    theirs = b"90 28 0:55 / /mnt/\\377\xff rw - nfs4 nas:/\xfe rw\n"
    ours = b"91 28 0:56 / /run/lunshare/mnt/x rw shared:1 - nfs4 nas:/srv rw\n"
    table.write_bytes(theirs + ours)
    mounts = Mounts(str(table))
    found = mounts.find("/run/lunshare/mnt/x")
    assert found
    assert (found.source, found.device) == ("nas:/srv", os.makedev(0, 56))
    assert [mount.source for mount in mounts.table()] == ["nas:/\ufffd", "nas:/srv"]


def test_share_manage_needs_permission_of_root_for_a_foreign_file(
    tmp_path: Path,
) -> None:
    point, name = tmp_path / POINT, f"volume-{uuid.uuid4()}"
    point.mkdir()
    mounts = Directories(2**30)
    mounts.mounted[str(point)] = "nas:/srv"

    def take(reference: str, manage: bool) -> object:
        served = Served(base=str(tmp_path), shares=("nas:/srv",), manage=manage)
        given = {"point": str(point), "name": name, "reference": reference}
        verb = ShareVerbs(mounts, served, is_exported).verbs()["share.manage"]
        return verb({**given, "size": 4096, "mode": "0600"}, 5.0)

    theirs, given_away = "database.img", f"unmanaged-volume-{uuid.uuid4()}"
    for each in (theirs, given_away, "unmanaged-database"):
        (point / each).write_bytes(bytes(4096))
    for each in (theirs, "unmanaged-database"):
        with pytest.raises(Unsupported, match="manage_foreign_disks"):
            take(each, False)
    assert take(given_away, False) == 4096
    (point / name).unlink()
    assert take(theirs, True) == 4096


RULES = Path(__file__).parents[2] / "systemd" / "lunshare.rules"


@pytest.mark.parametrize(
    "name",
    [
        *("volume-{}", "volume-{}.new", "volume-{}.tail", "volume-{}.revert"),
        *("_snapshot-{}", "deleted-{}.8388608", "unmanaged-{}"),
    ],
)
def test_node_reads_no_volume_under_any_name_that_the_daemon_can_give(
    name: str,
) -> None:
    """A file system with the UUID of the node's root gets its link in /dev/disk.

    The daemon's user could write one, and rename the volume to unmanaged-UUID.
    """
    quiet = re.findall(r'ENV{DM_LV_NAME}=="([^"]+)"', RULES.read_text())
    assert any(fnmatch.fnmatchcase(name.format(uuid.uuid4()), each) for each in quiet)
    assert not any(fnmatch.fnmatchcase("home", each) for each in quiet)


def test_share_that_root_does_not_list_any_more_is_not_touched(tmp_path: Path) -> None:
    """It may still be mounted; the daemon's user could read and change its files."""
    point = tmp_path / POINT
    point.mkdir()
    both = [new_volume(8192), new_volume(8192)]
    for each in both:
        (point / each.name).write_bytes(bytes(8192))
    mounts = Directories(2**30)
    served = Served(base=str(tmp_path), shares=("nas:/srv",))
    verbs: dict[str, Any] = {
        **ShareVerbs(mounts, served, is_exported).verbs(),
        **CopyVerbs(served, is_exported, mounts).verbs(),
    }
    source, target = (
        {"volume_id": each.id, "path": f"{point}/{each.name}", "size": 8192}
        | {"kind": "file"}
        for each in both
    )
    name = {"point": str(point), "name": both[0].name}
    requests: dict[str, dict[str, Any]] = {
        "share.list": {"point": str(point)},
        "share.find": name,
        "share.delete": name,
        "disk.copy": {"source": source, "target": target},
    }
    for mounted in ("nas:/other", "evil:/srv", "nas:/srv2", "nas:/srv/../etc"):
        mounts.mounted[str(point)] = mounted
        for verb, given in requests.items():
            with pytest.raises((HelperRefused, NotServed), match="nfs_shares"):
                verbs[verb](given, 5.0)
        state = verbs["share.check"]({"point": str(point)}, 5.0)
        assert (state["source"], state["trouble"]) == (mounted, "not served")
    mounts.mounted[str(point)] = "nas:/srv/below"
    assert verbs["share.find"](name, 5.0) == 8192
    assert verbs["share.check"]({"point": str(point)}, 5.0)["trouble"] == ""
    verbs["disk.copy"](requests["disk.copy"], 5.0)
