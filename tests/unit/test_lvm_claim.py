# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lunshare works with a volume group."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drivers.errors import Misconfigured
from drivers.lvm import claim
from tests.unit.lvm_answers import (
    GROUP,
    HALF_FULL,
    VG,
    Answering,
    Scripted,
    driver,
    rows,
)


def test_a_group_is_tagged_once():
    vgs = VG % (9, "")
    root = Answering(HALF_FULL, vgs=vgs, lvs=rows(), vgchange="")
    driver(root).check()
    (tagged,) = (argv for argv in root.commands if argv[0] == "vgchange")
    assert tagged[-3:] == ("--addtag", claim.tag(), GROUP)
    root = Answering(HALF_FULL, vgs=VG % (9, "theirs," + claim.tag()), lvs=rows())
    driver(root).check()


def test_a_group_of_another_node_is_refused():
    tag = f"lunshare:{'0' * 32}:storage-2"
    root = Scripted(vgs=VG % (9, tag), lvs=rows())
    with pytest.raises(Misconfigured, match=f"storage-2.*--deltag {tag} {GROUP}"):
        driver(root).check()
    assert [argv[0] for argv in root.commands] == ["vgs", "lvs"]


def test_a_node_that_was_renamed_keeps_its_group():
    digest = claim.tag().split(":")[1]
    assert claim.is_mine(GROUP, ["x", f"lunshare:{digest}:before"])
    assert not claim.is_mine(GROUP, ["x", "lunshare", "lunshare:short:y"])


def test_a_second_process_is_refused_until_the_first_has_ended():
    group = f"{GROUP}-2"
    hold = f"from drivers.lvm import claim; claim.hold_on_node({group!r})"
    line = [sys.executable, "-c", f"{hold}; print('held', flush=True); input()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(Misconfigured, match="another process"):
            claim.hold_on_node(group)
        first.kill()
    for _ in range(2):
        claim.hold_on_node(group)
