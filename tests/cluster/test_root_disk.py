# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Machines without a disk start from one LUN at the same time, read-only."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.diskless import Diskless
from tests.stands.waiting import until

_READ, _OWN = re.compile(r"root: read (\w{64})"), re.compile(r"root: own (\w{64})")
_FILE = "/tmp/first"  # in the guest that makes the disk
_SECONDS = 240.0


@pytest.fixture
def machines(cluster: Cluster, tmp_path: Path) -> Iterator[list[Diskless]]:
    with ExitStack() as stack:
        made = []
        for name, number in cluster.diskless.items():
            machine = Diskless(name, number, tmp_path / name)
            stack.callback(machine.kill)
            made.append(machine)
        yield made


def test_two_machines_start_from_one_disk_and_a_third_is_refused(
    cluster: Cluster, machines: list[Diskless], tmp_path: Path
) -> None:
    alpha, volume = cluster.hosts["alpha"], cluster.share("root", 1, rw=["alpha"])
    alpha.must("tests/cluster/make_root", volume.login("alpha"), _FILE)
    first = tmp_path / "initramfs"
    first.write_bytes(base64.b64decode(alpha.must("base64", _FILE)))
    volume.leave("alpha")
    before = cluster.digest(volume.id)
    *allowed, stranger = machines
    named = [f"{each.name}={each.initiator}@{each.address}" for each in allowed]
    words = ("attach", volume.id, *named, "--mode", "ro", "--json")
    rows = json.loads(cluster.lunshare(*words))["attachments"]
    scripts = [
        cluster.lunshare("consumer-config", row["id"], "--format", "ipxe")
        for row in rows
    ]

    for machine, script in zip(allowed, scripts, strict=True):
        machine.start(first, script)
    stranger.start(first, scripts[0])
    for machine in allowed:
        until(partial(machine.has_printed, "root: up"), machine.name, _SECONDS)
    until(lambda: stranger.has_printed("boot: not logged in"), "refused", _SECONDS)

    read = {match[1] for each in allowed if (match := _READ.search(each.printed))}
    own = {match[1] for each in allowed if (match := _OWN.search(each.printed))}
    assert len(read) == len(own) == 1
    assert read != own, "what a machine changes is in its memory"
    for machine in allowed:
        assert "Write protected" in machine.printed
        assert "lost its disk" not in machine.printed
    assert "iSCSI login failed due to authorization failure" in stranger.printed
    lines = map(str.split, cluster.lunshare("hosts", volume.id).splitlines()[1:])
    sessions = {(words[1], words[3], words[5]) for words in lines}
    assert sessions == {(each.name, "ro", "1") for each in allowed}
    assert cluster.digest(volume.id) == before
    for machine in allowed:
        machine.kill()
    cluster.lunshare("detach", volume.id, "--all")
