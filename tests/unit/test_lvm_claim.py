# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Only one lunshare works with a volume group."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.lvm import claim
from tests.unit.lvm_answers import (
    GROUP,
    THIN_POOL,
    VG,
    Answering,
    Scripted,
    driver,
    rows,
)


def test_check_tags_the_group_once():
    vgs = VG % (9, "")
    root = Answering(THIN_POOL, vgs=vgs, lvs=rows(), vgchange="")
    driver(root).check()
    (tagged,) = (argv for argv in root.commands if argv[0] == "vgchange")
    assert tagged[-3:] == ("--addtag", claim.node_tag(), GROUP)
    root = Answering(THIN_POOL, vgs=VG % (9, "theirs," + claim.node_tag()), lvs=rows())
    driver(root).check()


def test_check_refuses_a_group_of_another_node():
    tag = f"lunshare:{'0' * 32}:storage-2"
    root = Scripted(vgs=VG % (9, tag), lvs=rows())
    with pytest.raises(Misconfigured, match=f"storage-2.*--deltag {tag} {GROUP}"):
        driver(root).check()
    assert [argv[0] for argv in root.commands] == ["vgs", "lvs"]


def test_renamed_node_keeps_its_group():
    digest = claim.node_tag().split(":")[1]
    assert claim.is_tagged_by_this_node(GROUP, ["x", f"lunshare:{digest}:before"])
    assert not claim.is_tagged_by_this_node(
        GROUP, ["x", "lunshare", "lunshare:short:y"]
    )


@pytest.mark.parametrize("content", ["", "\n", "uninitialized\n", "0123\n", None])
def test_node_without_a_machine_id_works_with_no_group(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes that run such an image would have the same tag."""
    monkeypatch.setattr(claim, "MACHINE_ID", tmp_path / "machine-id")
    if content is not None:
        claim.MACHINE_ID.write_text(content)
    tag = f"lunshare:{'0' * 32}:storage-2"
    with pytest.raises(Misconfigured, match="run systemd-machine-id-setup"):
        claim.is_tagged_by_this_node(GROUP, [tag])


def test_second_process_is_refused_until_the_first_ends():
    group = f"{GROUP}-2"
    where = f"claim.CLAIM_DIRECTORY = pathlib.Path({str(claim.CLAIM_DIRECTORY)!r})"
    hold = f"import pathlib; from lunshare.drivers.lvm import claim; {where}"
    hold += f"; claim.lock_on_node({group!r}); print('held', flush=True); input()"
    line = [sys.executable, "-c", hold]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(Misconfigured, match="another process"):
            claim.lock_on_node(group)
        assert stat.S_IMODE((claim.CLAIM_DIRECTORY / group).stat().st_mode) == 0o600
        first.kill()
    for _ in range(2):
        claim.lock_on_node(group)


def test_processes_that_are_forked_after_a_claim_share_it():
    """cinder-volume creates every backend, then forks a process for each."""
    group = f"{GROUP}-7"
    code = f"""
import os, pathlib
from lunshare.drivers.lvm import claim
claim.CLAIM_DIRECTORY = pathlib.Path({str(claim.CLAIM_DIRECTORY)!r})
claim.lock_on_node({group!r})
for _ in range(2):
    if not os.fork():
        claim.lock_on_node({group!r})
        os._exit(0)
    print(os.wait()[1])
input()
"""
    line = [sys.executable, "-c", code]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert [first.stdout.readline() for _ in range(2)] == [b"0\n", b"0\n"]
        with pytest.raises(Misconfigured, match="another process"):
            claim.lock_on_node(group)
        found = driver(Scripted())
        vars(found)["_group"] = group
        found.claim()  # check() has the error
        first.kill()


def test_socket_of_another_user_does_not_lock_the_group():
    """Any user of the node can bind a name that is in no file system."""
    group = f"{GROUP}-3"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(f"\0lunshare/lvm/{group}")
        claim.lock_on_node(group)


def test_lock_file_that_is_a_link_is_refused(tmp_path):
    group, other = f"{GROUP}-4", tmp_path / "other"
    (claim.CLAIM_DIRECTORY / group).symlink_to(other)
    with pytest.raises(Misconfigured, match="claim on volume_group"):
        claim.lock_on_node(group)
    assert not other.exists()
