# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare`` with a node that listens: tables, JSON, error sentences, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.cli import main as cli
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.values import GIB, Mode, Volume
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator, node_fixture, served
from tests.stands.servers import ROOT, free_port

Output = tuple[int, str, str]


node = node_fixture(backends="cli,other")


@pytest.fixture
def endpoint(node: Node) -> Iterator[str]:
    for host, port in served(node, ("127.0.0.1", 0)):
        yield f"http://{host}:{port}/v3"


@pytest.fixture
def run(endpoint: str, capsys: pytest.CaptureFixture[str]):
    def run(*words: str, endpoint: str = endpoint) -> Output:
        code = cli.main([*words, "--endpoint", endpoint])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_pools_print_a_table_with_a_line_per_pool(run, node: Node) -> None:
    code, out, err = run("pools")
    head, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split()[:4] == ["POOL", "STATE", "TOTAL", "FREE"]
    assert first.split()[0].endswith("@cli#cli")
    assert first.split()[1:] == [
        "up",
        "1000",
        "1000",
        "0",
        "0",
        "0",
        "iSCSI",
        "yes",
        "-",
    ]
    assert second.split()[0].endswith("@other#other")
    # A column begins where its head does, for eyes and for cut.
    assert head.index("STATE") == first.index("up")


def test_a_pool_that_is_down_shows_the_reason(run, node: Node) -> None:
    with node.driver("cli").failures.fail("check", RuntimeError("because of the test")):
        node.services.node.refresh()
    _, first, _ = run("pools")[1].splitlines()
    assert first.split()[1] == "down"
    assert "its driver failed unexpectedly" in first


def test_explain_names_the_chosen_pool_and_every_filter_result(run, node: Node) -> None:
    Api(node.assembly.app)("POST", "/types", {"volume_type": {"name": "multiattach"}})
    code, out, _ = run("explain", "--size", "10", "--type", "multiattach")
    assert code == 0
    assert out.splitlines()[0].startswith("chosen: ")
    assert out.count("CapacityFilter") == 2
    assert "it has space for 20000 GiB" in out
    assert "WEIGHER" in out


def test_explain_without_a_fitting_pool_exits_with_4(run) -> None:
    code, out, err = run("explain", "--size", "30000")
    assert (code, err) == (4, "")
    assert out.startswith("chosen: none\n")
    assert out.count("FAILS") == 2
    assert "WEIGHER" not in out
    assert run("explain", "--size", "1", "--zone", "mars")[0] == 4


def test_json_prints_the_answer_of_the_node(run, node: Node) -> None:
    api = Api(node.assembly.app)
    found = json.loads(run("pools", "--json")[1])
    assert [p["name"] for p in found] == [
        p["name"] for p in api("GET", "/scheduler-stats/get_pools")["pools"]
    ]
    found = json.loads(run("explain", "--size", "1", "--json")[1])
    body = {"volume": {"size": 1}}
    assert found == api("POST", "/scheduler-stats/explain", body)["explanation"]


def test_messages_of_every_project_are_listed(run, node: Node) -> None:
    api = Api(node.assembly.app)
    for tier in ("mars", "venus"):
        api.volume(volume_type=api.type(tier=tier)["id"])
    head, newest, oldest = run("messages")[1].splitlines()
    assert head.split()[-1] == "MESSAGE"
    assert "venus" in newest
    assert "mars" in oldest
    assert len(run("messages", "--limit", "1")[1].splitlines()) == 2


def test_a_refused_request_prints_the_sentence_of_the_node(run) -> None:
    code, out, err = run("explain", "--size", "1", "--type", "silver")
    assert (code, out) == (1, "")
    assert err == "lunshare: volume_type silver could not be found. (404)\n"


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://127.0.0.1:{port}/v3", "no node answers at http://127.0.0.1:"),
        ("unix:/nonexistent/api.sock", "no node answers at unix:/nonexistent"),
        ("ftp://127.0.0.1/", "endpoint ftp://127.0.0.1/ is not valid"),
        ("http://127.0.0.1:word/v3", "is not valid"),
    ],
)
def test_an_unreachable_node_is_reported_in_one_sentence(
    run, endpoint: str, said: str
) -> None:
    code, out, err = run("pools", endpoint=endpoint.format(port=free_port()))
    assert (code, out) == (3, "")
    assert said in err
    assert len(err.splitlines()) == 1


class Other(BaseHTTPRequestHandler):
    """Another service, and the answer of a node with deleted disks."""

    ANSWERS = {
        "/v3/lunshare/wipes": (
            200,
            b'{"wipes": [{"name": "gone-1", "backend": "lvm",'
            b' "size": 4294967296, "left": 1073741824}]}',
        ),
        "/v3/scheduler-stats/get_pools": (200, b"<html>"),
        "/v3/messages": (404, b'{"error": "x"}'),
    }

    def do_GET(self) -> None:
        status, text = self.ANSWERS[self.path.partition("?")[0]]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other() -> Iterator[str]:
    """Yield the endpoint of the other service."""
    server = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v3"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("verb", ["pools", "messages"])
def test_another_service_at_the_endpoint_is_reported(
    run, verb: str, other: str
) -> None:
    code, _, err = run(verb, endpoint=other)
    assert code == 3
    assert "is not a Block Storage API" in err


def test_wipes_are_shown_in_gib(run, other: str) -> None:
    code, out, _ = run("wipes", endpoint=other)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["NAME", "BACKEND", "SIZE", "LEFT"],
        ["gone-1", "lvm", "4", "1"],
    ]


def test_the_endpoint_may_be_a_unix_socket(run, node: Node, tmp_path: Path) -> None:
    for path in served(node, str(tmp_path / "api.sock")):
        code, out, _ = run("pools", endpoint=f"unix:{path}")
        assert code == 0
        assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nothing",),
        ("explain",),
        ("explain", "--size", "0"),
        ("explain", "--size", "1.5"),
        ("messages", "--limit", "-1"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["connect", "disconnect"])
def test_a_login_without_root_is_refused_in_one_sentence(
    command: str, endpoint: str
) -> None:
    program = """
import os, sys
from lunshare.agent.cli.main import main
os.seteuid(os.geteuid() or 65534)  # nobody
sys.exit(main(sys.argv[1:]))
"""
    words = ["-c", program, command, "first", "--endpoint", endpoint]
    result = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, cwd=ROOT
    )
    sentence = "lunshare: a login to a target needs root: use sudo\n"
    assert (result.returncode, result.stderr) == (6, sentence)


def test_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "exit codes:" in out
    assert all(
        verb in out
        for verb in ("pools", "hosts", "explain", "errors", "wipes", "messages")
    )


def test_the_command_imports_nothing_of_the_daemon_and_reads_its_environment(
    endpoint: str,
) -> None:
    program = (
        "import sys; from lunshare.agent.cli.main import main;"
        "code = main(sys.argv[1:]);"
        "loaded = {'sqlalchemy', 'falcon', 'oslo_config', 'lunshare.drivers'};"
        "loaded.add('lunshare.agent.main');"
        "sys.exit(9 if loaded & set(sys.modules) else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "pools"],
        cwd=ROOT,
        env={"LUNSHARE_ENDPOINT": endpoint},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "@cli#cli" in done.stdout


def test_hosts_of_a_named_volume_show_differences_to_the_target(
    run, node: Node
) -> None:
    api = Api(node.assembly.app)
    volume = api.volume(name="disk1")
    api.attachment(volume["id"], mode="ro", connector=connector("host1"))
    code, out, err = run("hosts", "disk1")
    head, line = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split()[:5] == ["VOLUME", "HOST", "INITIATOR", "MODE", "STATUS"]
    assert line.split() == [
        "disk1",
        "host1",
        initiator("host1"),
        "ro",
        "attaching",
        "0",
        "-",
        "ro",
        *("-", "-", "-", "-", "-", "-"),
    ]
    assert run("hosts")[1] == run("hosts", volume["id"])[1] == out
    acls = node.target(volume_backend(api, volume)).storage.exports[volume["id"]]
    acls[initiator("host1")].mode = Mode.RW
    code, out, _ = run("hosts", "disk1")
    assert code == 5
    assert "the database says ro, the target allows rw" in out
    assert run("hosts", "disk2")[0::2] == (
        1,
        "lunshare: no volume has the id or the name 'disk2'\n",
    )
    api.volume(name="disk1")
    assert "2 volumes are named 'disk1'; give an id of: " in run("hosts", "disk1")[2]


def test_targets_are_verified_reported_and_repaired(run, node: Node) -> None:
    api = Api(node.assembly.app)
    volume = api.shared_volume(name="verified")
    api.attachment(volume["id"], mode="ro", connector=connector("reader"))
    code, out, _ = run("verify", "verified")
    assert (code, out) == (0, "1 clean, 0 repaired, 0 drift, 0 unverified\n")
    acls = node.target(volume_backend(api, volume)).storage.exports[volume["id"]]
    acls[initiator("reader")].mode = Mode.RW
    for words in (("verify", "verified", "--report"), ("verify",)):
        code, out, _ = run(*words)
        assert code == 5
        assert acls[initiator("reader")].mode is Mode.RW
        assert [volume["id"], "drift", "wider", initiator("reader")] in [
            line.split()[:4] for line in out.splitlines()
        ]
    code, out, _ = run("verify", "verified", "--repair")
    assert code == 0
    assert "0 clean, 1 repaired, 0 drift, 0 unverified" in out
    assert acls[initiator("reader")].mode is Mode.RO
    with node.target(volume_backend(api, volume)).failures.fail(
        "observe", TargetFailed(volume["id"], "broken")
    ):
        code, out, _ = run("verify", "verified")
    assert code == 7
    assert "unverified" in out
    assert "broken" in out
    assert run("verify", "nothing")[0] == 1


def test_a_handover_names_hosts_and_shows_each_step(run, node: Node) -> None:
    api = Api(node.assembly.app)
    volume = api.volume(
        name="handed", volume_type=api.type(multiattach="<is> True")["id"]
    )
    for host, mode in (("alpha", "rw"), ("beta", "ro")):
        api.attachment(volume["id"], mode=mode, connector=connector(host))
    assert run("handover", "handed")[1].split()[-1] == "REASON"
    backend = node.target(volume_backend(api, volume))
    hangs = DeadlineExceeded("a write in progress", 1.0)
    with backend.failures.fail("apply.closed", hangs):
        code, out, _ = run("handover", "handed", "--to", "beta")
    assert (code, "fence pending" in out) == (7, True)
    code, out, err = run("handover", "handed", "--to", "beta")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[:3] == ["done", "alpha", "beta"]
    assert run("handover", "handed") == (0, out, "")
    code, out, _ = run(
        "handover", "handed", "--from", initiator("beta"), "--to", "alpha", "--force"
    )
    assert (code, out.splitlines()[1].split()[2]) == (0, "alpha")
    code, _, err = run("handover", "handed", "--to", "gamma")
    assert (code, "no attachment of the volume has the id, host" in err) == (1, True)


def test_a_fence_shows_its_proof_for_each_volume(run, node: Node) -> None:
    api = Api(node.assembly.app)
    volume = api.volume(name="fenced")
    api.attachment(volume["id"], connector=connector("omega"))
    assert run("fences")[0] == 0
    backend = node.target(volume_backend(api, volume))
    hangs = DeadlineExceeded("a write in progress", 1.0)
    with backend.failures.fail("apply.before", hangs):
        code, out, err = run("fence", "omega", "--writes")
        assert (code, err) == (7, "")
        assert ("fence pending" in out, "a write in progress" in out) == (True, True)
        assert run("fences")[0] == 7
    code, out, err = run("fence", initiator("omega"))
    assert (code, err) == (0, "")
    line = out.splitlines()[1].split()
    assert line[:6] == [
        initiator("omega"), "all", volume["id"], initiator("omega"), "rw", "fenced"
    ]  # fmt: skip
    code, out, _ = run("fences", "--json")
    assert [each["host"] for each in json.loads(out)] == [initiator("omega"), "omega"]
    assert run("fence", "nobody")[1].splitlines()[1].split() == [
        "nobody", "all", "-", "-", "-", "fenced", "-", "-", "-"
    ]  # fmt: skip
    for host in ("nobody", "omega", initiator("omega")):
        assert run("unfence", host)[0] == 0
    assert len(run("fences")[1].splitlines()) == 1


@pytest.fixture(scope="module")
def short_pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with one item on a page; its log is not what a test captures."""
    path = tmp_path_factory.mktemp("pages")
    made = Node(path, "osapi_max_limit = 1", backends="errors").start()
    yield made
    made.close()


def test_errors_list_the_reasons_of_all_pages_and_projects(
    short_pages: Node, run
) -> None:
    node = short_pages
    api = Api(node.assembly.app)
    volumes = [api.volume(name=f"disk{number}")["id"] for number in range(4)]
    broken = TargetFailed("v", "because of the test")
    with node.driver("errors").failures.fail("unmanage.before", broken):
        for each in volumes[1:3]:
            api.fault(500, "POST", f"/volumes/{each}/action", {"os-unmanage": None})
    for host, port in served(node, ("127.0.0.1", 0)):
        code, out, err = run("errors", endpoint=f"http://{host}:{port}/v3")
    head, *rows = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["KIND", "ID", "NAME", "STATUS", "REASON"]
    assert [line.split()[:4] for line in rows] == [
        ["volume", volumes[1], "disk1", "error_unmanaging"],
        ["volume", volumes[2], "disk2", "error_unmanaging"],
    ]
    assert all("because of the test" in line for line in rows)


def volume_backend(api: Api, volume: dict[str, Any]) -> str:
    host = str(api.shown(volume["id"])["os-vol-host-attr:host"])
    return host.partition("@")[2].partition("#")[0]


def test_an_orphan_is_deleted_only_with_yes(run, node: Node) -> None:
    ident = str(uuid.uuid4())
    node.driver("cli").create(Volume(ident, GIB))
    assert ["disk", ident, "cli"] in listed(run)
    code, out, _ = run("delete-orphan", "disk", ident)
    assert (code, out.splitlines()[1]) == (0, "nothing is deleted without --yes")
    assert node.driver("cli").disk(ident)
    code, out, _ = run("delete-orphan", "disk", ident, "--yes")
    assert (code, out.split()[0]) == (0, "deleted:")
    code, _, err = run("delete-orphan", "disk", ident, "--yes")
    assert (code, err.count("\n")) == (1, 1)


def test_an_orphaned_disk_is_recovered_by_its_id(run, node: Node) -> None:
    ident = str(uuid.uuid4())
    node.driver("other").create(Volume(ident, 3 * GIB))
    said = run("recover", ident, "--name", "back")
    assert said == (0, f"volume {ident} of 3 GiB is recovered\n", "")
    assert ident not in [line[1] for line in listed(run)]


def listed(run) -> list[list[str]]:
    """Kind, id and backend of each orphan; the fake storage outlives a node."""
    return [line.split()[:3] for line in run("orphans")[1].splitlines()[1:]]
