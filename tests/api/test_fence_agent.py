# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""fence_lunshare as Pacemaker runs it: options on standard input, and exit codes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.api.identity_daemon import PASSWORD, Running, daemon, users
from tests.stands.node import connector
from tests.stands.servers import ROOT, free_port

pytestmark = pytest.mark.daemon

OPTIONS = "auth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"
ACTIONS = {
    "on",
    "off",
    "reboot",
    "status",
    "list",
    "list-status",
    "monitor",
    "metadata",
    "manpage",
    "validate-all",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("agent")
    roles = {"cluster": "admin", "anna": "member:one"}
    with daemon(path, OPTIONS.format(users(path, **roles))) as started:
        yield started


def agent(*words: str, **options: object) -> tuple[int, str, str]:
    """Exit code, output and errors; the options are lines of its input."""
    lines = "".join(f"{name}={value}\n" for name, value in options.items())
    command = [sys.executable, "-m", "lunshare.agent.cli.fence_agent", *words]
    ran = subprocess.run(
        command, input=lines, capture_output=True, text=True, cwd=ROOT, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


def of(running: Running, **more: object) -> dict[str, object]:
    """The options of a device, as its administrator has configured them."""
    endpoint = f"http://127.0.0.1:{running.port}/v3"
    user = {"username": "cluster", "password": PASSWORD}
    return {"endpoint": endpoint, **user, "nodename": "alpha", **more}


@pytest.fixture(scope="module")
def attachment(running: Running) -> str:
    """The id of an attachment of the host alpha."""
    new = {"volume": {"size": 1}}
    made = running.basic("cluster", "POST", "/v3/volumes", body=new).body["volume"]
    fields = {"volume_uuid": made["id"], "connector": connector("alpha")}
    answer = running.basic(
        "cluster", "POST", "/v3/attachments", body={"attachment": fields}
    )
    return str(answer.body["attachment"]["id"])


def fence_of(running: Running, attachment: str) -> str | None:
    shown = running.basic("cluster", "GET", f"/v3/attachments/{attachment}").body
    found = shown["attachment"].get("fence")
    return None if found is None else str(found)


def test_a_host_is_fenced_and_let_in_again(running: Running, attachment: str) -> None:
    alpha = of(running, port="alpha")
    assert agent(**alpha, action="status") == (0, "Status: ON\n", "")
    for action in ("off", "off", "reboot"):
        assert agent(**alpha, action=action) == (
            0,
            "Success: alpha is fenced, 1 volumes\n",
            "",
        )
        assert fence_of(running, attachment) == "fenced"
    assert agent(**alpha, action="status") == (2, "Status: OFF\n", "")
    assert agent(**of(running), action="list-status")[1] == "alpha,,OFF\n"
    for _ in range(2):
        said = "Success: alpha is unfenced, 1 volumes\n"
        assert agent(**alpha, action="on") == (0, said, "")
        assert fence_of(running, attachment) is None
    assert agent(**alpha, action="status")[0] == 0


@pytest.mark.usefixtures("attachment")
def test_the_node_is_monitored(running: Running) -> None:
    for action in ("monitor", "validate-all"):
        assert agent(**of(running), action=action) == (0, "", "")
    assert agent(**of(running), action="list") == (0, "alpha,\n", "")
    assert agent("-o", "monitor", "--endpoint", "unix:" + running.socket)[0] == 0


def test_what_fails_has_its_exit_code_and_a_sentence(running: Running) -> None:
    given = of(running)
    for wrong, code, sentence in (
        ({"password": "wrong"}, 3, "(401)"),
        ({"username": "anna"}, 3, "(403)"),
        ({"action": "dance"}, 1, "action 'dance': one of on, off"),
        ({"action": "off"}, 1, "plug is missing"),
        ({"action": "off", "plug": "b", "power_timeout": "soon"}, 1, "power_timeout"),
        ({"endpoint": ""}, 1, "endpoint is missing"),
        ({"endpoint": f"http://127.0.0.1:{free_port()}/v3"}, 4, "no node answers"),
    ):
        found, out, err = agent(**{**given, "action": "monitor", **wrong})
        assert (found, out) == (code, ""), (wrong, err)
        assert err.startswith("fence_lunshare: ")
        assert sentence in err
    # 2 would say that the host is off.
    for words in (("-o", "dance"), ("-o", "status", "--no"), ("-o", "status")):
        assert agent(*words)[0] == 1


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "1e9", "soon", "9" * 99])
def test_a_time_is_a_number_of_seconds(running: Running, seconds: str) -> None:
    code, _, err = agent(**of(running, plug="b", power_timeout=seconds), action="off")
    assert (code, "power_timeout" in err) == (1, True)


def test_hostile_lines_of_input_are_one_sentence(running: Running) -> None:
    command = [sys.executable, "-m", "lunshare.agent.cli.fence_agent"]
    endpoint = f"endpoint=http://127.0.0.1:{running.port}/v3\n".encode()
    for lines in (b"action=off\nplug=\xff\n", b"\x00" * 9, b"=\n==\naction==off\n"):
        ran = subprocess.run(
            command, input=lines + endpoint, capture_output=True, cwd=ROOT, check=False
        )
        assert ran.returncode == 1
        assert ran.stderr.startswith(b"fence_lunshare: ")
        assert ran.stderr.count(b"\n") == 1


def test_a_node_that_hangs_does_not_outlast_the_time(running: Running) -> None:
    """The kernel completes its connections; nobody answers them."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        endpoint = f"http://127.0.0.1:{hangs.getsockname()[1]}/v3"
        given = {**of(running, plug="b", power_timeout=1), "endpoint": endpoint}
        start = time.monotonic()
        for action in ("off", "on", "status", "monitor"):
            assert agent(**given, action=action)[0] == 4
    assert time.monotonic() - start < 30


def test_a_host_that_may_read_is_on_unless_only_writing_is_taken(
    running: Running,
) -> None:
    device = of(running, plug="reader")
    assert agent(**device, writes_only=1, action="off")[0] == 0
    assert agent(**device, action="status") == (0, "Status: ON\n", "")
    assert agent(**device, writes_only=1, action="status")[0] == 2
    assert agent(**device, action="off")[0] == 0
    assert agent(**device, action="status")[0] == 2
    assert agent(**device, action="on")[0] == 0


def test_a_node_that_does_not_answer_is_waited_for(running: Running) -> None:
    gone = f"http://127.0.0.1:{free_port()}/v3"
    given = {**of(running, plug="alpha", power_timeout=1), "endpoint": gone}
    assert agent(**given, action="off")[0] == 4


def test_metadata_has_each_action_and_option() -> None:
    """As metadata.rng of fence-agents 4.12.1 has it, which needs its packages."""
    code, out, err = agent(action="metadata")
    assert (code, err) == (0, "")
    root = ElementTree.fromstring(out)
    assert [child.tag for child in root] == [
        "longdesc", "vendor-url", "parameters", "actions"
    ]  # fmt: skip
    assert root.attrib.keys() == {"name", "shortdesc"}
    for parameter in root.iter("parameter"):
        assert [child.tag for child in parameter] == ["getopt", "content", "shortdesc"]
        assert parameter.attrib["required"] in ("0", "1")
        kind = parameter[1].attrib["type"]
        assert kind in ("boolean", "string", "second", "integer")
    names = {parameter.attrib["name"] for parameter in root.iter("parameter")}
    assert {"plug", "port", "endpoint", "action"} <= names
    assert {action.attrib["name"] for action in root.iter("action")} == ACTIONS
    (on,) = [each for each in root.iter("action") if each.attrib["name"] == "on"]
    assert on.attrib["automatic"] == "1"
