# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A misconfigured or full node: one clear sentence, and nothing incomplete stays."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Traffic
from tests.system.kernel import Live
from tests.system.units import run
from tests.system.volumes import MakeDaemon, MakeHost

pytestmark = pytest.mark.system

TINY = "lunshare-tiny"
MIB = 1024**2


def _start_error(daemon: MakeDaemon, **wrong: object) -> str:
    """The sentence of a daemon that can not start, without a traceback."""
    process = daemon(**wrong).launch()
    assert process.ended() == 1
    message = process.output()
    assert "Traceback" not in message
    lines = message.splitlines()
    (sentence,) = (line for line in lines if line.startswith("lunshared: "))
    return sentence


def test_missing_volume_group_is_one_sentence_with_the_remedy(
    daemon: MakeDaemon,
) -> None:
    message = _start_error(daemon, backend={"volume_group": "nowhere"})
    assert "volume_group nowhere" in message
    assert "vgcreate nowhere" in message


def test_missing_thin_pool_is_one_sentence_with_the_remedy(daemon: MakeDaemon) -> None:
    message = _start_error(daemon, backend={"lvm_pool": "nowhere"})
    assert "lvm_pool nowhere" in message
    assert "lvcreate --type thin-pool" in message


def test_daemon_without_its_helper_names_what_to_start(daemon: MakeDaemon) -> None:
    message = _start_error(daemon, helper="/run/nowhere.sock")
    assert "/run/nowhere.sock" in message
    assert "restart lunshare-helper.socket" in message


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[str]:
    """A volume group of 1.5 GiB with a thin pool of 64 MiB."""
    disk = tmp_path / "disk"
    with open(disk, "wb") as new:
        new.truncate(1536 * MIB)
    loop = run("losetup", "--find", "--show", str(disk)).strip()
    run("vgcreate", "-qq", TINY, loop)
    pool = f"{TINY}-pool"
    run("lvcreate", "-qq", "--type", "thin-pool", "-L", "64m", "-n", pool, TINY)
    yield TINY
    run("vgremove", "-qq", "--force", "--yes", TINY)
    run("losetup", "--detach", loop)


def _volumes_in(group: str) -> list[str]:
    listed = run("lvs", "--noheadings", "-o", "lv_name", group).split()
    return [name for name in listed if name.startswith("volume-")]


def _assert_refused_without_a_trace(api: Api, group: str, *words: str) -> None:
    """A create is 413 and names the reason; no row and no disk stays."""
    before = _volumes_in(group)
    status, answer = api.call("POST", "/v3/volumes", {"volume": {"size": 1}})
    assert status == 413, answer
    message = answer["overLimit"]["message"]
    assert all(word in message for word in words), message
    assert _volumes_in(group) == before
    assert len(api.must("GET", "/v3/volumes")["volumes"]) == len(before)


def test_full_thin_pool_refuses_a_volume_with_the_reason(
    tiny: str, daemon: MakeDaemon
) -> None:
    backend = {"volume_group": tiny, "max_over_subscription_ratio": 1000}
    api = daemon(backend=backend).start().api
    volume = api.volume(shared=False)
    filler = ["dd", "if=/dev/urandom", f"of=/dev/{tiny}/volume-{volume}"]
    run(*filler, "bs=1M", "count=63", "oflag=direct")
    _assert_refused_without_a_trace(api, tiny, f"{tiny}-pool", "full")


def test_full_volume_group_refuses_a_volume_with_the_reason(
    tiny: str, daemon: MakeDaemon
) -> None:
    backend = {"volume_group": tiny, "lvm_type": "default"}
    api = daemon(backend=backend).start().api
    # Allocated by hand, after the daemon has read the free space.
    run("lvcreate", "-qq", "-L", "800m", "-n", "foreign", tiny)
    _assert_refused_without_a_trace(api, tiny, tiny)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 2 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs", str(path))
    yield path
    run("umount", str(path))


def _fill(path: Path) -> None:
    """Fill the filesystem; existing files keep their space."""
    with open(path / "filler", "wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))
    assert shutil.disk_usage(path).free == 0


def test_full_disk_under_the_database_is_reported_and_leaves_nothing(
    small_disk: Path, daemon: MakeDaemon, host: MakeHost
) -> None:
    node = daemon()
    node.state.symlink_to(small_disk)
    api = node.start().api
    volume, stays = api.volume(), host("stays")
    created = api.attach(volume, stays)
    live = Live(volume)
    with Traffic(stays.login(created["connection_info"]), "rw") as traffic:
        _fill(small_disk)
        answers = []
        hosts = [host(f"host-{number}") for number in range(40)]
        for each in hosts:
            answers.append(api.create(volume, each))
            if answers[-1][0] != 200:
                break
        status, answer = answers.pop()
        assert status == 503, answer
        message = answer["serviceUnavailable"]["message"]
        assert "The database of this node cannot be used" in message
        assert node.process
        assert "database or disk is full" in node.process.output()
        assert api.call("DELETE", f"/v3/volumes/{volume}")[0] in (400, 503)
        answered = {each["attachment"]["id"] for _, each in answers} | {created["id"]}
        traffic.wait_for_progress()
        (small_disk / "filler").unlink()
        path = f"/v3/attachments?volume_id={volume}"
        rows = api.must("GET", path)["attachments"]
        assert {row["id"] for row in rows} == answered
        wanted = {each.initiator for each in [stays, *hosts[: len(answers)]]}
        assert set(live.modes()) == wanted
        again = api.attach(volume, host("again"))
        assert api.detach(again["id"])[0] == 200
        traffic.wait_for_progress()
    until(lambda: api.call("GET", "/readyz")[0] == 200)


def test_second_daemon_on_the_same_state_path_is_refused(daemon: MakeDaemon) -> None:
    first = daemon().start()
    second = daemon()
    second.state.symlink_to(first.state)
    process = second.launch()
    assert process.ended() == 1
    assert "another lunshared already uses state_path" in process.output()
    assert first.api.answers()
    second.state.unlink()


def test_helper_refuses_every_other_user() -> None:
    knock = (
        "import socket; s = socket.socket(socket.AF_UNIX);"
        " s.connect('/run/lunshare/helper.sock')"
    )
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "python3", "-c", knock],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "PermissionError" in done.stderr
