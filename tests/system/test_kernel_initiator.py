# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel's own initiator as one more host, driven by os-brick's connector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.api import Api
from tests.system.compute_client import SECONDS, Compute
from tests.system.hosts import Traffic, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import BLOCK
from tests.system.units import run
from tests.system.volumes import BorrowVolume, MakeHost

pytestmark = pytest.mark.system

_PAUSE_SECONDS = 1.0


@pytest.fixture
def compute() -> Iterator[Compute]:
    created = Compute()
    yield created
    created.close()


def _attach(api: Api, volume: str, connector: object, mode: str) -> dict[str, Any]:
    asked = {"volume_uuid": volume, "mode": mode, "connector": connector}
    answer = api.must("POST", "/v3/attachments", {"attachment": asked})
    return dict(answer["attachment"])


@pytest.mark.timeout(3 * SECONDS)
def test_os_brick_attaches_writes_and_detaches_beside_other_hosts(
    api: Api, borrow: BorrowVolume, host: MakeHost, compute: Compute
) -> None:
    shared, mine = borrow(), borrow()
    reader, writer = host("reader"), host("writer")
    connector = compute.ask("properties")
    written = _attach(api, shared, connector, "rw")
    path = compute.ask("connect", written["connection_info"])
    reading = reader.login(api.attach(shared, reader, "ro")["connection_info"])
    compute.ask("write", [path, "from the kernel"])
    assert reading.read(0) == b"from the kernel".ljust(BLOCK, b".")
    assert write_protected(reading)

    # The same host has another volume read-only.
    read = _attach(api, mine, connector, "ro")
    writing = writer.login(api.attach(mine, writer)["connection_info"])
    writing.write(0, block("from the writer"))
    writing.write(1, block("") * 7)
    with (
        Traffic(reading, "ro", pause=_PAUSE_SECONDS) as reads,
        Traffic(writing, "rw", pause=_PAUSE_SECONDS) as writes,
    ):
        _reads_only(compute, read["connection_info"])
        for created, volume in ((written, shared), (read, mine)):
            compute.ask("disconnect", created["connection_info"])
            assert api.detach(created["id"])[0] == 200
            assert connector["initiator"] not in Live(volume).modes()
        for beside in (reads, writes):
            beside.wait_for_progress()
            beside.stop()
    assert reading.read(0).startswith(b"from the kernel")


@pytest.mark.timeout(3 * SECONDS)
def test_a_host_follows_a_change_of_its_mode_by_what_the_answer_says(
    api: Api, borrow: BorrowVolume, compute: Compute
) -> None:
    """Its I/O waits for the next login, and has no error."""
    made = _attach(api, borrow(), compute.ask("properties"), "rw")
    path, attachment = compute.ask("connect", made["connection_info"]), made["id"]
    device = os.path.realpath(path)
    compute.ask("write", [path, "first"])
    for mode, flag in (("ro", "1"), ("rw", "0")):
        asked = {"attachment": {"mode": mode}}
        answer = api.must("PUT", f"/v3/attachments/{attachment}", asked)["attachment"]
        assert (
            "iscsiadm -m session --rescan, then blockdev --getro" in answer["host_must"]
        )
        assert f"which prints {flag}" in answer["host_must"]
        assert compute.ask("read", path) == "first", "it waits, and has no error"
        run("iscsiadm", "-m", "session", "--rescan")
        assert run("blockdev", "--getro", device).strip() == flag
    compute.ask("write", [path, "second"])
    assert compute.ask("read", path) == "second"
    compute.ask("disconnect", made["connection_info"])
    assert api.detach(attachment)[0] == 200


def _reads_only(compute: Compute, info: dict[str, Any]) -> None:
    """Connect it; the host's kernel must refuse writes."""
    path = compute.ask("connect", info)
    device = os.path.basename(os.path.realpath(path))
    assert Path(f"/sys/block/{device}/ro").read_text().strip() == "1"
    assert compute.ask("read", path) == "from the writer"
    with pytest.raises(RuntimeError, match=r"not permitted|Read-only"):
        compute.ask("write", [path, "not allowed"])
