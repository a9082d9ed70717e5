# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One id from the header of an answer to the lines of the root helper.

Daemon and helper are two processes, and the driver runs commands in the helper.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent import request_scope
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.timers import Timer
from lunshare.drivers import request_ids
from lunshare.drivers.errors import DriverError
from lunshare.drivers.protocol import frames, messages
from tests.api.identity_daemon import Answer, UnixClient
from tests.stands.daemon import Lunshared, ready
from tests.stands.servers import ROOT
from tests.stands.waiting import until
from tests.unit.helper_process import HelperProcess

pytestmark = pytest.mark.daemon

OUTSIDE = ROOT / "tests" / "outside_driver"
CONFIG = """
[DEFAULT]
enabled_backends = files
listen = unix:{path}/api.sock
[helper]
socket = {socket}
[files]
volume_driver = dirs
target_driver = fake
dirs_path = {path}/pool
dirs_capacity_gb = 2
"""
ID = re.compile(r"\[(req-[0-9a-f-]{36})\]")


def packages(path: Path) -> str:
    """A path for Python with this tree, the outside driver and its entry point."""
    known = path / "site" / "lunshare_dirs-1.dist-info"
    known.mkdir(parents=True)
    named = "Metadata-Version: 2.1\nName: lunshare-dirs\nVersion: 1\n"
    (known / "METADATA").write_text(named)
    entry = "[lunshare.drivers]\ndirs = lunshare_dirs.driver:DirsVolumes\n"
    (known / "entry_points.txt").write_text(entry)
    return os.pathsep.join(map(str, (ROOT, OUTSIDE, known.parent)))


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[HelperProcess]:
    """A helper with the driver's filters and programs that do what is asked."""
    folder = tmp_path / "helper"
    folder.mkdir()
    made = HelperProcess(folder)
    shipped = (OUTSIDE / "rootwrap.d" / "dirs.filters").read_text()
    filters = folder / "rootwrap.d" / "dirs.filters"
    filters.write_text(shipped.replace("/var/lib/lunshare-dirs", f"{tmp_path}/pool"))
    filters.chmod(0o644)
    for name in ("install", "fallocate", "sync", "mv", "rm"):
        (folder / "bin" / name).symlink_to(f"/usr/bin/{name}")
    made.start("")
    yield made
    made.stop()


@pytest.fixture
def socket_path(tmp_path: Path, helper: HelperProcess) -> Iterator[Path]:
    """The socket of a daemon whose backend runs commands in the helper."""
    (tmp_path / "pool").mkdir(mode=0o755)
    daemon = Lunshared(tmp_path, CONFIG.format(path=tmp_path, socket=helper.path))
    daemon.listen = [f"unix:{tmp_path}/api.sock"]
    with ready(daemon, PYTHONPATH=packages(tmp_path)):
        yield tmp_path / "api.sock"


def call(at: Path, method: str, path: str, body: object = None) -> Answer:
    """A request over the socket."""
    wire = UnixClient(str(at))
    headers = {"Content-Type": "application/json"} if body else {}
    wire.request(method, path, json.dumps(body) if body else None, headers)
    answer = Answer(wire.getresponse())
    wire.close()
    return answer


def test_a_request_is_found_in_the_log_of_the_helper(
    socket_path: Path, helper: HelperProcess, tmp_path: Path
) -> None:
    made = call(socket_path, "POST", "/v3/volumes", {"volume": {"size": 1}})
    volume, ident = made.body["volume"]["id"], made.headers["x-openstack-request-id"]
    said = tmp_path / "lunshared.log"
    until(lambda: f"volume created: volume={volume}" in said.read_text())
    lines = [line for line in helper.log_text().splitlines() if volume in line]
    assert any("run install " in line for line in lines)
    assert any("run fallocate " in line for line in lines)
    assert {ID.findall(line)[0] for line in lines} == {ident}
    gone = call(socket_path, "DELETE", f"/v3/volumes/{volume}")
    second = gone.headers["x-openstack-request-id"]
    until(lambda: f"volume deleted: volume={volume}" in said.read_text())
    (line,) = [each for each in helper.log_text().splitlines() if "run rm " in each]
    assert ID.findall(line) == [second]
    assert second != ident
    log = said.read_text()
    assert f"[- {ident} -] [files] volume created: volume={volume}" in log
    assert f"[- {second} -] [files] volume deleted: volume={volume}" in log


# what the helper takes for an id


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x" * 65,
        "req-1\nINFO [req-2] run rm -rf /",
        "req 1",
        "req-\u2028",
        "req-1]",
        "\x1b[31m",
        None,
        1,
        True,
        ["req-1"],
    ],
)
def test_an_id_of_another_form_is_refused(helper: HelperProcess, given: Any) -> None:
    """An attacker may be the daemon's user; a line of the log is evidence."""
    before = helper.log_text().count("\n")
    with helper.open_connection() as wire:
        asked = messages.request("lio.observe", 5, {})
        frames.send(wire, asked | {"request_id": given})
        answer = frames.receive(wire)
        assert answer["error"] == "invalid-value"
        assert answer["fields"]["name"] == "request.request_id"
        frames.send(wire, messages.request("none", 5, {}))
        assert frames.receive(wire)["error"] == "helper-refused"
    lines = helper.log_text().splitlines()[before:]
    assert len(lines) == 2, lines
    assert all(line.startswith("WARNING [-] REFUSED ") for line in lines)


def test_the_next_request_of_a_connection_has_its_own_id(helper: HelperProcess) -> None:
    client = helper.client()
    for ident in ("req-1", "req-2", request_ids.NONE):
        with request_ids.scope(ident), pytest.raises(DriverError):
            client.call("none")
    ids = [
        re.findall(r"\[(.*?)\]", line)[0]
        for line in helper.log_text().splitlines()[-3:]
    ]
    assert ids == ["req-1", "req-2", "-"]


# in the daemon


def test_a_job_has_the_id_of_the_request_that_asked_for_it() -> None:
    jobs, seen = JobRunner(5.0), list[str]()

    def step(_ident: str) -> None:
        seen.append(request_ids.current())

    for ident in ("req-1", "req-2"):
        with request_scope.scope(ident):
            jobs.run_and_wait(step, ident, "one")
    jobs.submit(step, "c", "one").result(20)
    jobs.stop()
    assert seen[:2] == ["req-1", "req-2"]
    assert re.fullmatch("req-[0-9a-f-]{36}", seen[2])


def test_each_turn_of_a_timer_has_an_id_of_its_own() -> None:
    seen, turned = list[str](), threading.Semaphore(0)

    def work() -> None:
        seen.append(request_ids.current())
        turned.release()

    timer = Timer("test", 3600, work)
    timer.start()
    for _ in range(3):
        timer.wake()
        assert turned.acquire(timeout=20)
    timer.stop()
    assert len(set(seen)) == 3
    assert all(request_ids.FORM.fullmatch(each) for each in seen)
    assert request_ids.NONE not in seen


def test_an_id_ends_with_its_block() -> None:
    with request_ids.scope("req-1"):
        with request_ids.scope("not a\nform"):
            assert request_ids.current() == request_ids.NONE
        assert request_ids.current() == "req-1"
        seen: list[str] = []
        thread = threading.Thread(
            target=request_ids.inherited(lambda: seen.append(request_ids.current()))
        )
        thread.start()
        thread.join()
        assert seen == ["req-1"]
    assert request_ids.current() == request_ids.NONE


def test_a_record_gets_the_id() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "text", None, None)
    with request_ids.scope("req-1"):
        assert request_ids.add(record)
    assert vars(record)["request_id"] == "req-1"
