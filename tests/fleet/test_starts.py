# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder with lunshare's driver: what its next start does after a kill."""

from __future__ import annotations

import contextlib
import signal
import threading
import uuid

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.stack import THICK, THIN, Stack
from tests.fleet.transcript import modes, say
from tests.stands.waiting import until


def test_killed_service_leaves_hosts_and_continues(
    stack: Stack, client: Client, volume: str
) -> None:
    attachment, info = api.attach(client, volume, "one", "rw")
    reader, r_info = api.attach_at_once(client, volume, "two", "ro")
    direct = api.create(client, THIN)
    sent = {"connector": api.connector("three")}
    api.act(client, direct, "os-initialize_connection", sent)
    session = stack.host(THIN, api.iqn("one"), info)
    before = stack.exports(THIN)
    assert before[volume][api.iqn("one")] == ("rw", attachment)

    stack.stop_volume(signal.SIGKILL)
    session.write(b"while it is down")
    stack.forget_export(THIN, direct)
    stack.start_volume()
    until(lambda: stack.exports(THIN) == before, "every export is as it was")
    assert session.is_alive()
    session.write(b"while it is up again")
    say("killed: no session ended")

    stack.stop_volume(signal.SIGKILL)
    stack.forget_export(THIN, volume)  # a reboot of the node
    stack.start_volume()
    until(lambda: stack.exports(THIN) == before, "every export is as it was")
    assert stack.host(THIN, api.iqn("one"), info).read(5) == b"while"
    with pytest.raises(PermissionError):
        stack.host(THIN, api.iqn("two"), r_info).write(b"x")
    say("killed and rebooted: the same exports, modes and secrets")
    until(lambda: stack.is_up(THIN, THICK), "it is up again")
    api.detach(client, attachment)
    api.detach(client, reader)
    assert volume not in stack.exports(THIN)
    api.act(client, direct, "os-terminate_connection", sent)
    assert direct not in stack.exports(THIN)


def test_killed_operations_end_at_the_next_start(stack: Stack, client: Client) -> None:
    busy, shared = api.shared_type(client, THIN), api.create(client, THIN)
    attachment, _ = api.attach(client, shared, "one", "rw")
    doomed = api.create(client, THIN)
    stack.hang(THIN, "create.half")
    body = {"volume": {"size": 1, "volume_type": busy}}
    half = client("POST", "/volumes", body)["volume"]["id"]
    stack.hang(THIN, "delete.before")
    client("DELETE", f"/volumes/{doomed}")
    until(lambda: half in stack.disks(THIN), "the creation has begun")
    stack.stop_volume(signal.SIGKILL)
    stack.release()
    stack.start_volume()
    until(lambda: stack.is_up(THIN, THICK), "it is up again")
    api.gone(client, f"/volumes/{doomed}")
    api.reaches(client, half, "error")
    api.delete(client, half)
    assert not {half, doomed} & stack.disks(THIN)
    assert modes(stack, shared) == {"one": "rw"}
    api.detach(client, attachment)


def test_exports_of_the_nodes_other_backend_are_not_reported(
    stack: Stack, client: Client, volume: str
) -> None:
    """A kernel has one target for all backends of its node."""
    unknown, before = str(uuid.uuid4()), len(stack.log)
    with stack.exported(THICK, volume, unknown):
        stack.stop_volume(signal.SIGKILL)
        stack.start_volume()
        until(lambda: unknown in stack.log[before:], "the unknown export is reported")
        new = stack.log[before:].splitlines()
        lines = [line for line in new if "exports without" in line]
        assert len(lines) == 1
        why = "1 exports without a volume of this backend, such as:"
        assert f"{why} {unknown}" in lines[0]
        assert {volume, unknown} <= set(stack.exports(THICK))  # not touched
        until(lambda: stack.is_up(THIN, THICK), "it is up again")


def test_access_that_no_row_wants_is_closed_at_a_start(
    stack: Stack, client: Client, volume: str
) -> None:
    attachment = api.reserve(client, volume, "rw")
    stack.hang(THIN, "apply.after")
    # cinder-api waits for an answer that never comes, until its own timeout.
    threading.Thread(
        target=_connect, args=(stack.client(), attachment), daemon=True
    ).start()
    until(lambda: modes(stack, volume) == {"one": "rw"}, "the access is open")
    stack.stop_volume(signal.SIGKILL)
    stack.release()
    stack.start_volume()
    until(lambda: modes(stack, volume) == {}, "it is closed")  # its row has no host
    until(lambda: stack.is_up(THIN, THICK), "it is up again")
    api.detach(client, attachment)
    _, info = api.attach(client, volume, "two", "rw")
    stack.host(THIN, api.iqn("two"), info).write(b"x")


def test_host_without_a_secret_affects_no_other_host(
    stack: Stack, client: Client, volume: str
) -> None:
    first, info = api.attach(client, volume, "one", "rw")
    second, _ = api.attach(client, volume, "two", "ro")
    stack.stop_volume(signal.SIGKILL)
    stack.forget_export(THIN, volume)  # a reboot of the node
    for table, column, row in (
        ("volumes", "provider_auth", volume),
        ("volume_attachment", "connection_info", second),
    ):
        stack.database.execute(f"UPDATE {table} SET {column} = NULL WHERE id = '{row}'")
    before = len(stack.log)
    stack.start_volume()
    until(lambda: modes(stack, volume) == {"one": "rw"}, "the other host has access")
    stack.host(THIN, api.iqn("one"), info).write(b"x")
    why = f"Cinder's database has no CHAP secret of {api.iqn('two')}: delete the"
    until(lambda: why in stack.log[before:], "the log names the host")
    until(lambda: stack.is_up(THIN, THICK), "it is up again")
    api.detach(client, second)
    assert modes(stack, volume) == {"one": "rw"}
    _, again = api.attach(client, volume, "two", "ro")
    assert stack.host(THIN, api.iqn("two"), again).read(1) == b"x"
    api.detach(client, first)
    assert modes(stack, volume) == {"two": "ro"}
    say("a host without a secret has no access; the other one has it")


def _connect(client: Client, attachment: str) -> None:
    with contextlib.suppress(Exception):
        api.connect(client, attachment, "one")
