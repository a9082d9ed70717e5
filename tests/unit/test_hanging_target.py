# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Targets whose disks hang occupy only the threads of their own volume group.

A detach of the last host, and the removal of a target, name no disk: it may be lost.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.helper.lio.backstores import Role
from lunshare.drivers.helper.lio.iscsi_target import Target
from lunshare.drivers.helper.thread_limits import THREADS
from tests.unit.test_stale_requests import ID, OTHER, helper, target, until, wanted

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
