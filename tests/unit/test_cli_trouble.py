# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare`` in trouble: odd names, odd terminals, signals, a node that restarts."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lunshare.agent.model.records import Page
from lunshare.drivers.errors import TargetFailed
from tests.api.calls import Api
from tests.stands.node import CTX, Node, connector, endpoint, initiator, node_fixture
from tests.stands.servers import LOOPBACK, ROOT
from tests.stands.waiting import until

Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]

__all__ = ["endpoint"]

node = node_fixture(forget_storage=True)
WORDS = (sys.executable, "-m", "lunshare.agent.cli.main")
PAIR = f"alpha={initiator('alpha')}@192.0.2.7"


@pytest.fixture
def run(endpoint: str) -> Run:
    """Run a command in a shell's way: with its own streams and environment."""

    def run(*words: str | bytes, shell: str = '"$@"', **environment: str) -> Ran:
        command = ["sh", "-c", shell, "sh", *WORDS, *words]
        env = {**os.environ, "LUNSHARE_ENDPOINT": endpoint, **environment}
        return subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=ROOT, env=env
        )

    return run


def one_sentence(ran: Ran) -> str:
    """The error, which is one line and no traceback."""
    assert ran.stderr.startswith(("lunshare: ", "usage: ")), ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr.splitlines()[-1]


def attached(node: Node, **fields: Any) -> dict[str, Any]:
    """A volume that the host alpha has."""
    api = Api(node.assembly.app)
    made: dict[str, Any] = api.volume(**fields)
    api.attachment(made["id"], connector=connector("alpha"))
    return made


def test_a_name_of_a_client_commands_no_terminal(run: Run, node: Node) -> None:
    attached(node, name="a\x1b[2J\x9b1m\nforged line\u202e")
    ran = run("hosts")
    assert len(ran.stdout.splitlines()) == 2
    assert "a\\x1b[2J\\x9b1m\\nforged line\\u202e" in ran.stdout
    with node.driver().failures.fail("create.before", TargetFailed("v", "\x1b[2J")):
        ran = run("share", "1", "--name", "b\x1b[2J")
    assert ran.returncode == 1
    assert "\x1b" not in one_sentence(ran)


def test_a_terminal_that_lacks_a_letter_gets_its_number(run: Run, node: Node) -> None:
    attached(node, name="日本")
    ran = run("hosts", PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\u65e5\\u672c" in ran.stdout


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_a_reader_that_ends_is_no_trouble(
    run: Run, node: Node, watch: list[str]
) -> None:
    attached(node)
    ran = run("hosts", *watch, shell='timeout 20 "$@" | head -n1')
    assert (ran.stdout.split()[0], ran.stderr) == ("VOLUME", "")


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_output_that_cannot_be_written_is_said(
    run: Run, node: Node, watch: list[str]
) -> None:
    ran = run("hosts", *watch, shell='timeout 20 "$@" >/dev/full')
    assert ran.returncode == 1
    assert "the output could not be written" in one_sentence(ran)


def test_watched_hosts_are_json_where_it_is_asked(endpoint: str, node: Node) -> None:
    attached(node)
    command = [*WORDS, "hosts", "--watch", "--json", "--endpoint", endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout)
        text = ""
        while not text.endswith("]\n"):
            text += next(lines)
        assert json.loads(text)[0]["host"] == "alpha"
        watching.send_signal(signal.SIGINT)
        rest = "".join(lines)
    assert watching.returncode == 0
    assert "VOLUME" not in rest


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OS_CACERT": "/nonexistent"}, "OS_CACERT /nonexistent"),
        ({"OS_CACERT": "/etc/passwd"}, "OS_CACERT /etc/passwd"),
        ({"OS_TOKEN": "a\nb"}, "OS_TOKEN"),
        ({"OS_TOKEN": "日本"}, "OS_TOKEN"),
    ],
)
def test_a_wrong_environment_is_named(
    run: Run, environment: Mapping[str, str], sentence: str
) -> None:
    words = (
        ["--endpoint", "https://localhost:1/v3"] if "OS_CACERT" in environment else []
    )
    ran = run("pools", *words, **environment)
    assert sentence in one_sentence(ran)
    assert "Block Storage" not in ran.stderr


@pytest.mark.parametrize("verb", ["fence", "hosts", "consumer-config"])
def test_a_word_that_is_no_text_is_a_wrong_command_line(run: Run, verb: str) -> None:
    ran = run(verb, b"\xff")
    assert ran.returncode == 2
    assert "UTF-8" in one_sentence(ran)


@pytest.mark.parametrize("text", ["a b", "é", "../volumes", "x?y=1", "x/action"])
def test_an_id_is_no_path(run: Run, text: str) -> None:
    ran = run("consumer-config", text)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"attachment {text} could not be found" in one_sentence(ran)


def test_a_volume_without_a_name_is_not_found_by_none(run: Run, node: Node) -> None:
    volume = attached(node)["id"]
    ran = run("detach", "", "alpha")
    assert (ran.returncode, "no volume has" in ran.stderr) == (1, True)
    assert node.live(volume)


def test_an_initiator_is_found_in_any_case(run: Run, node: Node) -> None:
    volume = attached(node)["id"]
    assert run("detach", volume, initiator("alpha").upper()).returncode == 0
    assert node.live(volume) == {}


def test_a_host_that_is_named_like_an_id_hides_no_attachment(
    run: Run, node: Node
) -> None:
    api = Api(node.assembly.app)
    volume = api.volume(volume_type=api.type(multiattach="<is> True")["id"])["id"]
    row = api.attachment(volume, connector=connector("alpha"))["id"]
    hostile = {**connector("beta"), "host": row}
    api.attachment(volume, mode="ro", connector=hostile)
    assert run("detach", volume, row).returncode == 0
    assert node.live(volume) == {initiator("beta"): "ro"}


def test_why_blames_no_volume_for_an_attachment_that_is_not_complete(
    run: Run, node: Node
) -> None:
    volume = attached(node)["id"]
    ran = run("why", "alpha", volume)
    assert ran.stdout.splitlines()[1].split() == ["volume", "ok", "attaching"]


def test_why_names_the_fence_that_keeps_a_host_away(run: Run, node: Node) -> None:
    volume = attached(node)["id"]
    assert run("fence", "alpha").returncode == 0
    ran = run("why", "alpha", volume)
    assert ran.returncode == 5
    assert ran.stdout.splitlines()[-2].split()[:3] == ["attachment", "BROKEN", "fenced"]
    assert "lunshare unfence" in ran.stdout


def ids(node: Node) -> list[str]:
    return [row.id for row in node.services.volumes.list(CTX, Page(None, 10))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("point", ["create.before", "apply.before"])
def test_a_signal_leaves_nothing_half_made(
    endpoint: str, node: Node, point: str, number: signal.Signals
) -> None:
    faults = node.driver() if point == "create.before" else node.target()
    # The tests may run under nohup, which ignores SIGHUP for them and their children.
    defaults = ("env", "--default-signal=HUP")
    command = [*defaults, *WORDS, "share", "1", "--rw", PAIR, "--endpoint", endpoint]
    with (
        faults.failures.hold(point) as gate,
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as sharing,
    ):
        assert gate.reached.wait(10)
        sharing.send_signal(number)
        sharing.send_signal(number)
        gate.open.set()
        assert sharing.wait(30) == 128 + number
        assert sharing.stderr is not None
        assert sharing.stderr.read() == ""
    until(lambda: ids(node) == [], "the volume is deleted")


class Way(socketserver.ThreadingTCPServer):
    """To a node that is killed when it has done what was asked.

    ``loses`` has the start of the request whose answer is lost; the node then answers
    the next two connections not at all.
    """

    to: tuple[str, int]
    loses, refused = b"POST /v3/volumes/", 0


class LosesAnswers(socketserver.BaseRequestHandler):
    """One connection on the way."""

    server: Way

    def handle(self) -> None:
        if self.server.refused:
            self.server.refused -= 1
            return
        with self.request.makefile("rb") as sent:
            head = b"".join(iter(sent.readline, b"\r\n")) + b"\r\n"
            length = re.search(rb"Content-Length: (\d+)", head)
            request = head + sent.read(int(length[1]) if length else 0)
        with socket.create_connection(self.server.to) as way:
            way.sendall(request)
            answer = way.recv(65536)
        if request.startswith(self.server.loses):
            self.server.refused = 2
            return
        self.request.sendall(answer)


def test_a_node_that_is_killed_in_the_middle_keeps_nothing(
    run: Run, endpoint: str, node: Node
) -> None:
    host, port = endpoint.removeprefix("http://").removesuffix("/v3").split(":")
    with Way((LOOPBACK, 0), LosesAnswers) as way:
        way.to = (host, int(port))
        thread = threading.Thread(target=way.serve_forever, args=(0.05,))
        thread.start()
        words = ["share", "1", "--rw", PAIR]
        ran = run(*words, "--endpoint", f"http://{LOOPBACK}:{way.server_address[1]}/v3")
        way.shutdown()
        thread.join()
    assert ran.returncode == 3
    assert "no node answers" in one_sentence(ran)
    assert len(ran.stderr.splitlines()) == 1
    until(lambda: ids(node) == [], "the volume is deleted")
