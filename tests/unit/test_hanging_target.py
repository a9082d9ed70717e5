# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Targets whose disks hang occupy only the threads of their own volume group.

A detach of the last host, and the removal of a target, name no disk: it may be lost.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.protocol import frames
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.thread_limits import THREADS
from tests.stands.waiting import until
from tests.unit.test_stale_requests import (
    HOST,
    ID,
    OTHER,
    end_hang,
    helper,
    target,
    wanted,
)

__all__ = ["target"]


@pytest.fixture
def hung(target: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The kernel waits for the writes in progress of a disk, until it is set."""
    Path(target.backstore_link(Role.WRITERS), "udev_path").write_text(
        f"/dev/vg/volume-{ID}\n"
    )
    acl = Path(target.acl(OTHER))
    (acl / "info").unlink()
    (acl / "info").write_text("LIO Session ID: 5")
    for name in ("tag", "cmdsn_depth", "attrib/authentication", "auth/userid"):
        (acl / name).parent.mkdir(exist_ok=True)
        (acl / name).touch()
    lands, open_ = threading.Event(), os.open

    def waiting(path: Any, flags: int, *more: Any, **named: Any) -> int:
        ends = str(path).endswith(("/cmdsn_depth", "/enable"))
        if ends and flags & os.O_WRONLY:
            lands.wait(60)
        return open_(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", waiting)
    yield lands
    lands.set()
    until(lambda: not THREADS._waiting)


@pytest.mark.parametrize("verb", ["lio.apply", "lio.remove"])
@pytest.mark.parametrize("known", [True, False])
def test_thread_of_a_hung_target_is_counted_for_its_group(
    tmp_path: Path, target: Target, hung: threading.Event, verb: str, known: bool
) -> None:
    """256 of them, for no group, were all threads: no other backend had one."""
    if not known:
        Path(target.backstore_link(Role.WRITERS), "udev_path").unlink()
    given = wanted(tmp_path, only=OTHER) | {"disk": None}
    if verb == "lio.remove":
        given = {"volume_id": ID}
    with helper(tmp_path) as root, root.send(verb, **given):
        until(lambda: THREADS._waiting)
        counted = dict(THREADS._waiting)
        Path(target.acl(OTHER), "info").write_text("No active iSCSI Session")
        hung.set()
    assert counted == {"/dev/vg" if known else "unknown disks": 1}


@pytest.mark.parametrize("readers", [(), (HOST, OTHER)], ids=["close", "restrict"])
def test_every_host_loses_write_access_before_one_of_them_is_waited_for(
    tmp_path: Path, target: Target, hung: threading.Event, readers: tuple[str, ...]
) -> None:
    """The second host could write for as long as the first one was waited for."""
    acls = [Path(target.acl(host)) for host in (OTHER, HOST)]
    shutil.copytree(acls[0], acls[1])
    for acl in acls:
        (acl / "lun_0").mkdir()
        (acl / "lun_0/write_protect").write_text("0")
    given = wanted(tmp_path, *readers, only=OTHER) | {"only": None}
    for each in given["connectors"]:
        each["mode"] = "ro"
    with helper(tmp_path) as root, root.send("lio.apply", 1.0, **given) as connection:
        connection.settimeout(10)
        answer = frames.receive(connection)
        protected = [(acl / "lun_0/write_protect").read_text() for acl in acls]
        tags = [(acl / "tag").read_text() for acl in acls]
        for acl in acls:
            (acl / "info").write_text("No active iSCSI Session")
        hung.set()
    assert answer["error"] == "deadline-exceeded"
    assert protected == ["1", "1"]
    if readers:  # a killed helper's next one waits for both again
        assert tags == ["(fencing)", "(fencing)"]


@pytest.mark.parametrize("verb", ["lio.live", "lio.host", "lio.compare"])
def test_read_of_a_target_that_hangs_ends_at_its_deadline(
    tmp_path: Path, target: Target, verb: str
) -> None:
    """The kernel locks an ACL's directory while it waits for the disk of its host."""
    acl = Path(target.acl(OTHER))
    (acl / "tag").write_text("a")
    # A FIFO: it is read when there is a writer.
    info, text = acl / "info", "No active iSCSI Session"
    given: dict[str, Any] = {"volume_id": ID}
    if verb == "lio.host":
        given["initiator"] = OTHER
    if verb == "lio.compare":  # it reads whether the ACL is a kept one
        given = wanted(tmp_path, only=OTHER) | {"disk": None, "only": None}
        info, text = acl / "tag", "a"
        info.unlink()
        os.mkfifo(info)
    with helper(tmp_path) as root:
        try:
            for _ in range(2):  # the second read waits for the first one
                with root.send(verb, timeout=0.3, **given) as connection:
                    connection.settimeout(10)
                    answer = frames.receive(connection)
                assert answer["error"] == "deadline-exceeded"
            counted = dict(THREADS._waiting)
        finally:
            end_hang(info, text)
        assert counted == {"reads of targets": 1}
        until(lambda: not THREADS._waiting)


def test_a_target_that_hangs_hides_no_other_one(tmp_path: Path, target: Target) -> None:
    """It was one read of all targets: nobody saw any of them until its deadline."""
    other = Path(target.path.replace(ID, str(uuid.uuid4())))
    (other / "tpgt_1/acls").mkdir(parents=True)
    acl = Path(target.acl(OTHER))
    (acl / "tag").write_text("a")
    with helper(tmp_path) as root:
        try:
            for _ in range(2):  # the second read finds the first one
                with root.send("lio.observe", timeout=0.3) as connection:
                    connection.settimeout(10)
                    answer = frames.receive(connection)
                found = {export["volume_id"]: export for export in answer["value"]}
                assert ID in found.pop(ID)["unread"]
                assert [export["connectors"] for export in found.values()] == [[]]
        finally:
            end_hang(acl / "info")
        until(lambda: not THREADS._waiting)
