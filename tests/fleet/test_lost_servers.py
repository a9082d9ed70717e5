# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder with lunshare's driver, whose API or database vanishes or waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.stack import THIN, Stack
from tests.fleet.transcript import modes, say
from tests.lab.steps import sh
from tests.stands.cinder_programs import python
from tests.stands.waiting import until

_CLOSED = "Terminate volume connection completed successfully"
#: As a service does, for which cinder-api makes an exception: noauth has no services.
_TERMINATE_ANY = """
import sys
from cinder import context, objects
from cinder.common import config
from cinder.volume import rpcapi
from oslo_config import cfg
from cinder import rpc
cfg.CONF(["--config-file", sys.argv[1]], project="cinder")
objects.register_all()
rpc.init(cfg.CONF)
admin = context.get_admin_context()
volume = objects.Volume.get_by_id(admin, sys.argv[2])
rpcapi.VolumeAPI().terminate_connection(admin, volume, None, force=True)
"""


def start(verb: Callable[..., object], *given: object) -> threading.Thread:
    """Send a request that may get no answer."""

    def run() -> None:
        with contextlib.suppress(Exception):
            verb(*given)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def reach(
    stack: Stack, point: str, verb: Callable[..., object], *given: object
) -> threading.Thread:
    """Send a request, and let the storage hang when it is at a point."""
    stack.hang(THIN, point)
    thread = start(verb, stack.client(), *given)
    until(lambda: stack.hangs(THIN, point), f"the request is at {point}")
    return thread


def delete_row(stack: Stack, attachment: str) -> None:
    """Delete an attachment as cinder-api does in the end."""
    stack.database.execute(
        "UPDATE volume_attachment SET attach_status = 'detached', deleted = 1"
        f" WHERE id = '{attachment}'"
    )


def direct(stack: Stack, volume: str) -> str:
    """The direct connections in Cinder's database."""
    return stack.database.execute(
        "SELECT `key` FROM volume_admin_metadata WHERE NOT deleted"
        f" AND volume_id = '{volume}' AND `key` LIKE 'lunshare:direct:%'"
    )


def test_repeated_detach_keeps_the_other_attachment_of_its_host(
    stack: Stack, client: Client, volume: str
) -> None:
    """cinder-api is killed after the driver's answer, before it deletes the row."""
    first, _ = api.attach(client, volume, "one", "rw")
    second, info = api.attach(client, volume, "one", "rw")
    session = stack.host(THIN, api.iqn("one"), info)
    before = len(stack.log)
    with stack.database.read_only("volume_attachment"):
        start(api.detach, stack.client(), first)
        until(lambda: _CLOSED in stack.log[before:], "the driver has answered")
        stack.servers["cinder-api"].end(signal.SIGKILL)
    stack.start_api()
    until(lambda: stack.is_up(THIN), "cinder-api answers")
    again = stack.client()
    api.detach(again, first)
    assert modes(stack, volume) == {"one": "rw"}
    assert session.is_alive()
    api.detach(again, second)
    assert modes(stack, volume) == {}
    assert not session.is_alive()


def test_attachment_of_a_host_is_opened_while_another_one_is_deleted(
    stack: Stack, client: Client, volume: str
) -> None:
    first, _ = api.attach(client, volume, "one", "rw")
    second, before = api.reserve(client, volume, "rw"), len(stack.log)
    connecting = reach(stack, "apply.after", api.connect, second, "one")
    with stack.database.read_only("volume_attachment"):  # neither row is written
        detaching = start(api.detach, stack.client(), first)
        stack.release()
        until(lambda: _CLOSED in stack.log[before:], "the driver has answered")
    connecting.join()
    detaching.join()
    assert modes(stack, volume) == {"one": "rw"}
    info = api.info_of(client, second)
    stack.host(THIN, api.iqn("one"), info).write(b"x")
    api.detach(client, second)
    assert modes(stack, volume) == {}


@pytest.mark.parametrize("verb", ["apply", "create_snapshot", "extend"])
def test_verb_that_hangs_delays_no_other_volume(
    stack: Stack, client: Client, volume: str, verb: str
) -> None:
    hung, point = api.create(client, THIN), f"{verb}.before"
    requests: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
        "apply": (api.attach, (hung, "one", "rw")),
        "create_snapshot": (api.snapshot, (hung,)),
        "extend": (api.act, (hung, "os-extend", {"new_size": 2})),
    }
    request, given = requests[verb]
    working = reach(stack, point, request, *given)
    attachment, _ = api.attach(client, volume, "two", "rw")
    snapshot = api.snapshot(client, volume)
    api.act(client, volume, "os-extend", {"new_size": 2})
    api.detach(client, attachment)
    client("DELETE", f"/snapshots/{snapshot}")
    api.gone(client, f"/snapshots/{snapshot}")
    assert stack.hangs(THIN, point)
    stack.release()
    working.join()
    api.reaches(client, hung, "available", "in-use")


def test_failed_detach_leaves_the_access_of_its_attachment(
    stack: Stack, client: Client, volume: str
) -> None:
    first, info = api.attach(client, volume, "one", "rw")
    session = stack.host(THIN, api.iqn("one"), info)
    stack.fail(THIN, "remove.before")
    stack.hang(THIN, "apply.before")
    with pytest.raises(RuntimeError):
        api.detach(client, first)
    until(lambda: stack.hangs(THIN, "apply.before"), "its access is applied again")
    stack.release()
    second = api.reserve(client, volume, "ro")
    stack.fail(THIN, "apply.before")
    with pytest.raises(RuntimeError):  # cinder-volume then applies every row
        api.connect(client, second, "two")
    assert modes(stack, volume) == {"one": "rw"}
    assert session.is_alive()
    for each in (first, second):
        api.detach(client, each)
    assert modes(stack, volume) == {}


def test_access_that_a_failed_detach_has_closed_is_opened_again(
    stack: Stack, client: Client, volume: str
) -> None:
    """As after a helper that hung: it closes it when cinder-volume waits no more."""
    attachment, _ = api.attach(client, volume, "one", "rw")
    stack.fail(THIN, "remove.after")
    with pytest.raises(RuntimeError):
        api.detach(client, attachment)
    until(lambda: modes(stack, volume) == {"one": "rw"}, "it is what its row says", 20)
    api.detach(client, attachment)
    assert modes(stack, volume) == {}


def test_failed_end_of_a_direct_connection_is_repeated(
    stack: Stack, client: Client, volume: str
) -> None:
    sent = {"connector": api.connector("one")}
    api.act(client, volume, "os-initialize_connection", sent)
    stack.fail(THIN, "remove.before")
    with pytest.raises(RuntimeError):
        api.act(client, volume, "os-terminate_connection", sent)
    until(lambda: modes(stack, volume) == {}, "it is closed", 20)


def test_attachment_that_is_deleted_while_it_is_connected_has_no_access(
    stack: Stack, client: Client, volume: str
) -> None:
    body = {"attachment": {"volume_uuid": volume}}  # as Nova's: without a mode
    attachment = client("POST", "/attachments", body)["attachment"]["id"]
    before = len(stack.log)
    with stack.database.read_only("volumes"):
        connecting = start(api.connect, stack.client(), attachment, "one")
        until(stack.database.waits, "cinder-volume has read the attachment")
        delete_row(stack, attachment)
    connecting.join()
    assert f"opened {api.iqn('one')}" in stack.log[before:]
    until(lambda: modes(stack, volume) == {}, "it is closed", 30)
    assert direct(stack, volume) == ""


def test_rows_of_a_deleted_volume_are_not_followed(
    stack: Stack, client: Client, volume: str
) -> None:
    attachment, _ = api.attach(client, volume, "one", "rw")
    api.detach(client, attachment)
    api.delete(client, volume)
    last = f"volume deleted, its rows are not followed any more: volume={volume}"
    # The attach is followed for 5 s. The detach is followed after 1 s, and finds the
    # volume or not, depending on how long the deletion takes.
    until(lambda: last in stack.log, "both ended", 20)
    assert f"access not applied; it is tried again: volume={volume}" not in stack.log


def test_attachment_that_another_host_takes_over_has_access_there_alone(
    stack: Stack, client: Client, volume: str
) -> None:
    attachment, info = api.attach(client, volume, "one", "rw")
    session = stack.host(THIN, api.iqn("one"), info)
    api.connect(client, attachment, "two")
    until(lambda: modes(stack, volume) == {"two": "rw"}, "the first is closed", 30)
    assert not session.is_alive()
    api.detach(client, attachment)
    assert modes(stack, volume) == {}


def test_detach_without_a_connector_leaves_the_other_hosts(
    stack: Stack, client: Client, volume: str
) -> None:
    """An action os-force_detach of a service: then cinder-api deletes one row."""
    first, _ = api.attach(client, volume, "one", "rw")
    second, info = api.attach(client, volume, "two", "ro")
    session = stack.host(THIN, api.iqn("two"), info)
    words = [str(python()), "-c", _TERMINATE_ANY, str(stack.config), volume]
    sh(words)
    assert modes(stack, volume) == {"one": "rw", "two": "ro"}
    delete_row(stack, first)
    until(lambda: modes(stack, volume) == {"two": "ro"}, "the host is closed", 20)
    assert session.is_alive()
    sh(words)
    assert modes(stack, volume) == {}
    api.detach(client, second)


def test_killed_database_leaves_no_access_without_a_row(
    stack: Stack, client: Client, volume: str
) -> None:
    reader, info = api.attach(client, volume, "two", "ro")
    session = stack.host(THIN, api.iqn("two"), info)
    attachment = api.reserve(client, volume, "rw")
    connecting = reach(stack, "apply.after", api.connect, attachment, "one")
    stack.database.end(signal.SIGKILL)
    stack.release()
    connecting.join()  # refused
    assert modes(stack, volume) == {"one": "rw", "two": "ro"}
    stack.database.start_again()
    until(lambda: modes(stack, volume) == {"two": "ro"}, "it is closed", 60)
    assert session.is_alive()
    api.connect(client, attachment, "one")
    assert modes(stack, volume) == {"one": "rw", "two": "ro"}

    detaching = reach(stack, "apply.after", api.detach, attachment)
    stack.database.end(signal.SIGKILL)
    stack.release()
    detaching.join()
    stack.database.start_again()
    assert modes(stack, volume) == {"two": "ro"}
    for each in (attachment, reader):
        api.detach(client, each)
    assert modes(stack, volume) == {}
    assert not session.is_alive()


def test_direct_connection_that_fails_without_a_database_is_forgotten(
    stack: Stack, client: Client, volume: str
) -> None:
    sent = {"connector": api.connector("one")}
    stack.hang(THIN, "apply.before", 5.0)
    stack.fail(THIN, "apply.after")
    opening = start(api.act, stack.client(), volume, "os-initialize_connection", sent)
    until(lambda: stack.hangs(THIN, "apply.before"), "it is being opened")
    stack.database.end(signal.SIGKILL)
    opening.join()
    stack.database.start_again()
    until(lambda: modes(stack, volume) == {}, "it is closed", 30)
    until(lambda: direct(stack, volume) == "", "it is forgotten", 30)
    api.delete(client, volume)


def test_killed_bus_leaves_the_access_of_the_rows(
    stack: Stack, client: Client, volume: str
) -> None:
    attachment = api.reserve(client, volume, "rw")
    reach(stack, "apply.after", api.connect, attachment, "one")
    stack.broker.end(signal.SIGKILL)
    stack.release()
    stored = "SELECT connector IS NOT NULL FROM volume_attachment WHERE id = '{}'"
    until(
        lambda: stack.database.execute(stored.format(attachment)).strip() == "1",
        "the row is stored",
    )
    stack.broker.start()
    until(lambda: stack.is_up(THIN), "cinder-volume reports again")
    assert modes(stack, volume) == {"one": "rw"}
    api.detach(client, attachment)
    assert modes(stack, volume) == {}


def test_row_that_the_database_stores_late_gets_its_access(
    stack: Stack, client: Client, volume: str
) -> None:
    """As while a dump of the database lets nobody write."""
    attachment = api.reserve(client, volume, "rw")
    connecting = reach(stack, "apply.after", api.connect, attachment, "one")
    with stack.database.read_only("volume_attachment"):
        stack.release()
        until(lambda: modes(stack, volume) == {}, "it is closed without a row", 60)
        say("a row that cannot be stored: the access is closed")
    until(lambda: modes(stack, volume) == {"one": "rw"}, "the row has its access", 20)
    connecting.join()
    api.detach(client, attachment)
    assert modes(stack, volume) == {}
