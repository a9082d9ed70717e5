# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Users and passwords of http_basic, with a daemon and with ``lunshare user``."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from lunshare.agent import users_file
from lunshare.agent.api.routes import PUBLIC, ROUTES
from tests.api.identity_daemon import PASSWORD, Running, daemon, proof, users
from tests.stands.daemon import refused
from tests.stands.servers import ROOT

pytestmark = pytest.mark.daemon

OPTIONS = "auth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"
ROLES = {
    "root": "admin",
    "anna": "member:one",
    "ben": "member:two",
    "rita": "reader:one",
    "nobody": ":one",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("basic")
    with daemon(path, OPTIONS.format(users(path, **ROLES))) as started:
        yield started


@pytest.fixture
def file(running: Running) -> Iterator[Path]:
    """The file of users, which is as it was after the test."""
    path = running.path / "users"
    good = path.read_text()
    yield path
    path.write_text(good)


def lunshare(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lunshare.agent.cli.main", *map(str, words)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, cwd=ROOT, check=False
    )


def _symlink(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


UNSAFE: dict[str, tuple[Callable[[Path], None], str]] = {
    "symlink": (_symlink, "is a symbolic link: name the file itself"),
    "fifo": (_fifo, "is not a file"),
    "group": (lambda file: file.chmod(0o660), "has mode 0660"),
    "world": (lambda file: file.chmod(0o602), "has mode 0602"),
    "owner": (lambda file: os.chown(file, 12345, -1), "belongs to uid 12345"),
}
ROOT_ONLY = {"owner"}


@pytest.mark.parametrize(
    "how", [h for h in UNSAFE if not (h in ROOT_ONLY and os.getuid())]
)
def test_a_file_that_others_can_write_is_refused(
    running: Running, tmp_path: Path, how: str
):
    """At the start, by the client, and while the daemon runs."""
    spoil, sentence = UNSAFE[how]
    own = users(tmp_path, **ROLES)
    spoil(own)
    config = tmp_path / "lunshare.conf"
    config.write_text(
        f"[DEFAULT]\nenabled_backends = a\nlisten = unix:{tmp_path}/s\n"
        + OPTIONS.format(own)
        + "[a]\nvolume_driver = fake\ntarget_driver = fake\n"
    )
    said = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert f"the file of users {own} {sentence}" in said
    listed = lunshare("user", "list", "--file", own)
    assert listed.returncode != 0
    assert sentence in listed.stderr
    served = running.path / "users"
    try:
        assert running.basic("root", "GET", "/v3/volumes").status == 200
        spoil(served)
        assert running.basic("root", "GET", "/v3/volumes").status == 503
        assert sentence in running.output()
    finally:
        served.unlink()
        users(running.path, **ROLES)
    assert running.basic("root", "GET", "/v3/volumes").status == 200


def test_versions_and_health_need_no_password(running: Running):
    for path, status in (("/", 300), ("/v3", 200), ("/v3/", 200), ("/healthz", 200)):
        assert running.http("GET", path).status == status


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Basic",
        "Basic !",
        "Basic \xff",
        "Bearer abc",
        "Basic cm9vdA==",
        proof("root", "wrong password")["Authorization"],
        proof("unknown", PASSWORD)["Authorization"],
        proof("root", "")["Authorization"],
        proof("root", PASSWORD + "\0")["Authorization"],
        proof("root", "x" * 100)["Authorization"],
    ],
)
def test_without_a_right_password_it_is_401_with_a_challenge(
    running: Running, header: str | None
):
    headers = {} if header is None else {"Authorization": header}
    for path in ("/v3/volumes", "/v3/one/volumes", "/v3/no/such"):
        answer = running.http("GET", path, headers=headers)
        assert answer.fault[:2] == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith('Basic realm="lunshare"')


@pytest.mark.parametrize("slashes", ["//", "///", "////", "/" * 9])
def test_no_spelling_of_a_path_bypasses_the_password(running: Running, slashes: str):
    """Routers ignore slashes that a check of the path's beginning does not."""
    for route in ROUTES:
        if route.path in PUBLIC:
            continue
        for path in (
            slashes + route.path[1:],
            slashes + "one/" + route.path[1:],
            route.path.replace("/v3/", f"/v3{slashes}"),
            route.path + slashes,
        ):
            status = bare_status(running, route.method, path.replace("{id}", "x"))
            assert status in (400, 401, 404), (route, path)


def bare_status(running: Running, method: str, path: str) -> int:
    """The status of a request without a proof of identity."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, "{}", {"Content-Type": "application/json"})
        return connection.getresponse().status


def test_a_user_acts_in_the_project_of_its_line(running: Running):
    made = running.basic("anna", "POST", "/v3/volumes", body={"volume": {"size": 1}})
    assert made.status == 202
    assert made.body["volume"]["user_id"] == "anna"
    seen = running.basic("root", "GET", f"/v3/volumes/{made.body['volume']['id']}")
    assert seen.body["volume"]["os-vol-tenant-attr:tenant_id"] == "one"


def test_only_an_administrator_names_another_project_in_the_path(running: Running):
    answer = running.basic("anna", "GET", "/v3/two/volumes")
    assert answer.fault[:2] == (400, "badRequest")
    assert "Malformed request url" in answer.fault[2]
    assert running.basic("anna", "GET", "/v3/one/volumes").status == 200
    assert running.basic("root", "GET", "/v3/two/volumes").status == 200


def test_a_changed_file_is_effective_at_once(running: Running, file: Path):
    assert running.basic("anna", "GET", "/v3/volumes").status == 200
    users(running.path, **{k: v for k, v in ROLES.items() if k != "anna"})
    assert running.basic("anna", "GET", "/v3/volumes").status == 401
    users(running.path, **ROLES)
    assert running.basic("anna", "GET", "/v3/volumes").status == 200


def test_a_file_with_a_wrong_line_refuses_every_user(running: Running, file: Path):
    good = file.read_text()
    assert running.basic("root", "GET", "/v3/volumes").status == 200
    file.write_text(good + "eve:plain text:admin:\n")
    answer = running.basic("root", "GET", "/v3/volumes")
    assert answer.fault[:2] == (503, "serviceUnavailable")
    assert "line 6 of the file of users" in running.output()
    assert PASSWORD not in running.output()
    file.write_text(good)
    assert running.basic("root", "GET", "/v3/volumes").status == 200


def test_bcrypt_does_not_cost_each_request(running: Running, file: Path):
    slow = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(12)).decode()
    file.write_text(file.read_text() + f"slow:{slow}:admin:\n")
    began = time.process_time()
    bcrypt.checkpw(PASSWORD.encode(), slow.encode())
    one = time.process_time() - began
    before = cpu(running)
    for _ in range(20):
        assert running.basic("slow", "GET", "/v3").status == 200
        assert running.basic("slow", "GET", "/v3/types").status == 200
    assert cpu(running) - before < 10 * one


def test_an_unknown_user_costs_the_same_as_a_wrong_password(running: Running):
    before = cpu(running)
    for _ in range(200):
        answer = running.basic("root", "GET", "/v3/types", password="wrong password")
        assert answer.status == 401
    wrong, before = cpu(running) - before, cpu(running)
    for _ in range(200):
        answer = running.basic("unknown", "GET", "/v3/types", password="wrong password")
        assert answer.status == 401
    assert wrong / 2 < cpu(running) - before < wrong * 2


def test_known_clients_do_not_queue_behind_wrong_passwords(
    running: Running, file: Path
):
    slow = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(12)).decode()
    file.write_text(file.read_text() + f"slow:{slow}:admin:\n")
    assert running.basic("root", "GET", "/v3/types").status == 200
    with contextlib.ExitStack() as strangers:
        for _ in range(440):
            wrong = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
            strangers.callback(wrong.close)
            headers = proof("slow", "wrong password")
            wrong.request("GET", "/v3/types", headers=headers)
        for number in range(20):
            began = time.monotonic()
            other = {"X-Auth-Token": str(number)}  # proves nothing here
            answer = running.basic("root", "GET", "/v3/types", headers=other)
            assert answer.status == 200
            assert time.monotonic() - began < 1


def test_known_clients_do_not_wait_for_those_that_read_no_answer(running: Running):
    """The document needs no password, and is the largest answer that does not."""
    document = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert running.basic("root", "GET", "/v3/types").status == 200
    with contextlib.ExitStack() as strangers:
        for _ in range(440):
            wire = strangers.enter_context(socket.socket())
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", running.port))
            wire.sendall(20 * document)
        for _ in range(20):
            began = time.monotonic()
            assert running.basic("root", "GET", "/v3/types").status == 200
            assert time.monotonic() - began < 2


def cpu(running: Running) -> float:
    """Seconds of CPU that the daemon has used."""
    fields = Path(f"/proc/{running.pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / 100


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("eve", "has no bcrypt hash"),
        ("eve:$apr1$x$y", "has no bcrypt hash"),
        (":$2b$04$" + "a" * 53, "a user's name has 1 to 255"),
        ("eve:$2b$04$" + "a" * 53 + ":a b:", "a role has no blank"),
        ("eve:$2b$04$" + "a" * 53 + "::p q", "a project has no blank"),
    ],
)
def test_a_wrong_line_is_a_start_error_that_names_it(
    line: str, problem: str, tmp_path: Path
):
    file = tmp_path / "users"
    file.write_text(f"# comment\n\n{line}\n")
    config = tmp_path / "lunshare.conf"
    config.write_text(
        f"[DEFAULT]\nenabled_backends = a\nlisten = unix:{tmp_path}/s\n"
        + OPTIONS.format(file)
        + "[a]\nvolume_driver = fake\ntarget_driver = fake\n"
    )
    said = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert f"line 3 of the file of users {file}" in said
    assert problem in said


def test_the_daemon_accepts_users_that_the_client_adds(running: Running, file: Path):
    good = users_file.read(str(file))
    added = lunshare(
        *("user", "add", "carl", "--roles", "member", "--project", "one"),
        *("--file", file),
        stdin="a long password\n",
    )
    assert (added.returncode, added.stderr) == (0, "")
    assert "a long password" not in file.read_text() + added.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    ask = {"password": "a long password"}
    assert running.basic("carl", "GET", "/v3/volumes", **ask).status == 200
    assert running.basic("carl", "GET", "/v3/volumes").status == 401
    assert (
        lunshare("user", "set-roles", "carl", "reader", "--file", file).returncode == 0
    )
    assert users_file.read(str(file))["carl"].roles == ("reader",)
    listed = lunshare("user", "list", "--file", file).stdout
    assert ["carl", "reader", "one"] in [line.split() for line in listed.splitlines()]
    assert lunshare("user", "remove", "carl", "--file", file).returncode == 0
    assert running.basic("carl", "GET", "/v3/volumes", **ask).status == 401
    assert users_file.read(str(file)) == good


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        (("add", "a:b"), "long enough\n", "a user's name has 1 to 255"),
        (("add", "a"), "short\n", "a password has 8 to 72 bytes"),
        (("add", "a"), "x" * 73, "a password has 8 to 72 bytes"),
        (("add", "a", "--roles", "a b"), "long enough\n", "a role has no blank"),
        (("add", "a", "--project", "a:b"), "long enough\n", "a project has no"),
        (("remove", "a"), "", "there is no user 'a'"),
    ],
)
def test_the_client_refuses_an_invalid_user(
    words: tuple[str, ...], stdin: str, sentence: str, tmp_path: Path
):
    file = tmp_path / "users"
    done = lunshare("user", *words, "--file", file, stdin=stdin)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert not file.exists()


def test_a_header_with_an_underscore_replaces_no_other(running: Running):
    """Both have one name in the environment of WSGI; proxies check the hyphens."""
    headers = {"OpenStack_API_Version": "volume 9.9"}
    assert running.basic("rita", "GET", "/v3/types", headers=headers).status == 200
