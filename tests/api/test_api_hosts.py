# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which host has which volume, as one answer: rows beside what the target has live."""

from __future__ import annotations

import operator
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.values import Auth, Mode
from tests.api.calls import Api
from tests.stands.node import CTX, Node, connector, initiator
from tests.stands.waiting import Later, until


def name() -> str:
    """A host that no other test has."""
    return f"h{uuid.uuid4().hex[:12]}"


def shown(api: Api, volume: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the hosts of a volume, from one request."""
    found: list[dict[str, Any]] = api(
        "GET", f"/lunshare/hosts?volume_id={volume['id']}"
    )["hosts"]
    return found


def attached(api: Api, volume: dict[str, Any], host: str, mode: str) -> dict[str, Any]:
    """An attachment with its connection."""
    return api.attachment(volume["id"], mode=mode, connector=connector(host))


def test_a_line_shows_host_mode_status_session_and_kernel_access(
    api: Api, node: Node
) -> None:
    volume, writer, reader = api.shared_volume(name="disk1"), name(), name()
    row = attached(api, volume, writer, "rw")
    attached(api, volume, reader, "ro")
    info = row["connection_info"]
    auth = Auth(info["auth_username"], info["auth_password"])
    session = node.target("api").login(volume["id"], initiator(writer), auth)
    lines = {line["host"]: line for line in shown(api, volume)}
    assert lines[writer] == {
        "volume_id": volume["id"],
        "volume_name": "disk1",
        "backend": "api",
        "host": writer,
        "initiator": initiator(writer),
        "attachment_id": row["id"],
        "mode": "rw",
        "status": "attaching",
        "allowed": "rw",
        "sessions": 1,
        "addresses": [],
        "refused_mib": None,
        "reservation_keys": [],
        "reservation": None,
        "fence": None,
        "verified_at": None,
        "problem": None,
        "lease": None,
    }
    assert lines[reader]["allowed"] == lines[reader]["mode"] == "ro"
    assert lines[reader]["sessions"] == 0
    session.close()
    everything = api("GET", "/lunshare/hosts")["hosts"]
    assert [line for line in everything if line["volume_id"] == volume["id"]] == shown(
        api, volume
    )


def live(api: Api, row: dict[str, Any]) -> Any:
    """What the target says of an attachment's host, from one request."""
    return api("GET", f"/attachments/{row['id']}")["attachment"]["live"]


def test_an_attachment_shows_what_the_target_says_of_its_host(
    api: Api, node: Node
) -> None:
    volume, reader, writer = api.shared_volume(), name(), name()
    assert live(api, api.attachment(volume["id"])) is None, "it has no host"
    row = attached(api, volume, reader, "ro")
    attached(api, volume, writer, "rw")
    info = row["connection_info"]
    auth = Auth(info["auth_username"], info["auth_password"])
    target = node.target("api")
    sessions = [target.login(volume["id"], initiator(reader), auth) for _ in "12"]
    assert live(api, row) == {
        "allowed": "ro",
        "sessions": 2,
        "addresses": [],
        "refused_mib": None,
        "fence": None,
        "verified_at": None,
        "problem": None,
    }
    for session in sessions:
        session.close()
    node.services.verifier.verify(CTX, volume["id"])
    verified = live(api, row)
    assert (verified["sessions"], verified["problem"]) == (0, None)
    assert verified["verified_at"] is not None
    target.storage.exports[volume["id"]][initiator(reader)].mode = Mode.RW
    changed = live(api, row)
    assert changed["allowed"] == "rw"
    assert changed["problem"] == "the database says ro, the target allows rw"


def test_an_attachment_is_shown_although_its_target_hangs(api: Api, node: Node) -> None:
    """Two wait for the target, and nobody else: the rest is in the database."""
    volume, host = api.shared_volume(), name()
    row = attached(api, volume, host, "rw")
    failures, points = node.target("api").failures, list[str]()
    failures.watch(points.append)
    with failures.hold("observe"):
        waiting = [Later(live, api, row) for _ in "12"]
        until(lambda: points.count("observe") == len(waiting))
        began = time.monotonic()
        unread = live(api, row)
        assert time.monotonic() - began < 1.5
    failures.watch(lambda _: None)
    assert [later.value()["allowed"] for later in waiting] == ["rw", "rw"]
    assert unread == {
        "allowed": None,
        "sessions": None,
        "addresses": None,
        "refused_mib": None,
        "fence": None,
        "verified_at": None,
        "problem": "backend api does not answer: others wait for it already",
    }
    broken = DeadlineExceeded("lio.host", 1.0)
    with failures.fail("observe", broken):
        assert str(broken) in live(api, row)["problem"]
    assert live(api, row)["allowed"] == "rw"


def test_what_an_operation_changes_now_is_no_problem(api: Api, node: Node) -> None:
    volume, host = api.shared_volume(), name()
    row = api.attachment(volume["id"], mode="rw")
    body = {"attachment": {"connector": connector(host)}}
    with node.target("api").failures.hold("apply.before") as gate:
        opening = Later(api, "PUT", f"/attachments/{row['id']}", body)
        assert gate.reached.wait(10)
        meanwhile = live(api, row)
    opening.value()
    assert (meanwhile["allowed"], meanwhile["problem"]) == (None, None)
    assert live(api, row)["allowed"] == "rw"


def test_a_difference_of_rows_and_target_is_shown(api: Api, node: Node) -> None:
    volume, host, foreign = api.shared_volume(), name(), name()
    attached(api, volume, host, "ro")
    acls = node.target("api").storage.exports[volume["id"]]
    acls[initiator(host)].mode = Mode.RW
    (line,) = shown(api, volume)
    assert line["problem"] == "the database says ro, the target allows rw"
    acls[initiator(foreign)] = acls.pop(initiator(host))
    missing, extra = shown(api, volume)
    assert missing["problem"] == "the database says ro, the target allows nothing"
    assert (extra["initiator"], extra["attachment_id"]) == (initiator(foreign), None)
    assert "no attachment asks for this access" in extra["problem"]


def test_an_access_that_could_not_be_closed_is_shown_as_open(
    api: Api, node: Node
) -> None:
    volume, host = api.shared_volume(), name()
    row = attached(api, volume, host, "rw")
    broken = TargetFailed(volume["id"], "because of the test")
    with node.target("api").failures.fail("remove.before", broken):
        api.fault(500, "DELETE", f"/attachments/{row['id']}")
    (line,) = shown(api, volume)
    assert line["status"] == "error_detaching"
    assert line["problem"] == "still open (rw) in the target"
    api("DELETE", f"/attachments/{row['id']}")
    assert shown(api, volume) == []


def test_what_a_host_has_left_in_the_kernel_is_named_and_stops_nothing(
    api: Api, node: Node
) -> None:
    volume, host, other = api.shared_volume(), name(), name()
    row = attached(api, volume, host, "ro")
    api("DELETE", f"/attachments/{row['id']}")
    storage = node.target("api").storage
    storage.remains[volume["id"]] = {initiator(host): "has left a session"}
    try:
        (line,) = shown(api, volume)
        assert (line["initiator"], line["allowed"]) == (initiator(host), None)
        assert line["problem"] == "has left a session"
        node.assembly.reconcile.run()
        health = api("GET", "/lunshare/health")["health"]
        sentence = (
            f"export of volume {volume['id']}: {initiator(host)} has left a session"
        )
        assert sentence in health["unknown"]
        assert f"export of volume {volume['id']}" not in str(
            api("GET", "/lunshare/orphans")
        )
        row = attached(api, volume, other, "ro")
        api("DELETE", f"/attachments/{row['id']}")
        api("DELETE", f"/volumes/{volume['id']}", status=202)
        node.assembly.reconcile.run()
        assert sentence in api("GET", "/lunshare/health")["health"]["unknown"]
    finally:
        del storage.remains[volume["id"]]


def test_all_rows_are_shown_when_a_target_does_not_answer(api: Api, node: Node) -> None:
    volume, host = api.shared_volume(), name()
    attached(api, volume, host, "ro")
    with node.target("api").failures.fail("observe", TargetFailed("v", "gone")):
        (line,) = shown(api, volume)
    assert (line["host"], line["mode"], line["sessions"]) == (host, "ro", None)
    assert line["problem"].startswith("backend api does not answer: ")


def test_the_hosts_have_pages(api: Api, node: Node) -> None:
    volumes = [api.shared_volume() for _ in range(3)]
    for volume in volumes:
        for _ in range(3):
            attached(api, volume, name(), "ro")
    extra = initiator(name())
    acls = node.target("api").storage.exports[volumes[0]["id"]]
    acls[extra] = next(iter(acls.values()))
    everything = api("GET", "/lunshare/hosts")
    assert "hosts_links" not in everything
    one = [line for volume in volumes for line in shown(api, volume)]
    key = operator.itemgetter("volume_id", "initiator")
    assert {key(line) for line in one} <= {key(line) for line in everything["hosts"]}
    for path, lines in (
        ("/lunshare/hosts?limit=2", everything["hosts"]),
        (f"/lunshare/hosts?limit=1&volume_id={volumes[0]['id']}", one[:4]),
    ):
        pages = list(pages_of(api, path))
        assert len({len(page) for page in pages[:-1]}) == 1
        assert [line for page in pages for line in page] == lines


def pages_of(api: Api, path: str) -> Iterator[list[dict[str, Any]]]:
    """The pages from this one on."""
    while path:
        page = api("GET", path)
        yield page["hosts"]
        links = page.get("hosts_links")
        query = urlsplit(links[0]["href"]).query if links else ""
        path = query and f"/lunshare/hosts?{query}"


def test_a_line_that_has_gone_names_no_page(api: Api) -> None:
    volume = api.shared_volume()
    row = attached(api, volume, name(), "ro")
    query = f"volume_id={volume['id']}&marker={volume['id']},{row['id']}"
    assert api("GET", f"/lunshare/hosts?{query}")["hosts"] == []
    api("DELETE", f"/attachments/{row['id']}")
    said = api.fault(404, "GET", f"/lunshare/hosts?{query}")
    assert said.startswith("marker: host ")
    assert "limit" in api.fault(400, "GET", "/lunshare/hosts?limit=x")


def test_an_unknown_volume_and_an_unknown_parameter_are_refused(api: Api) -> None:
    api.fault(404, "GET", f"/lunshare/hosts?volume_id={uuid.uuid4()}")
    said = api.fault(400, "GET", "/lunshare/hosts?volume=x")
    assert said == "volume is unknown here: leave it out."


def test_a_fenced_host_is_shown(api: Api, node: Node) -> None:
    volume, host = api.shared_volume(), name()
    attached(api, volume, host, "rw")
    api("PUT", f"/lunshare/fences/{host}", {"fence": {}})
    assert [line["fence"] for line in shown(api, volume)] == ["fenced"]
    api("DELETE", f"/lunshare/fences/{host}")
    assert [line["fence"] for line in shown(api, volume)] == [None]


def test_a_target_is_verified_and_repaired(api: Api, node: Node) -> None:
    volume, host = api.shared_volume(), name()
    attached(api, volume, host, "ro")
    body: dict[str, Any] = {"verify": {"volume_id": volume["id"]}}
    clean = api("POST", "/lunshare/verify", body)["verify"]
    assert clean["targets"] == []
    assert clean["counts"] == {"clean": 1, "repaired": 0, "drift": 0, "unverified": 0}
    (line,) = shown(api, volume)
    assert line["verified_at"] is not None
    acls = node.target("api").storage.exports[volume["id"]]
    acls[initiator(host)].mode = Mode.RW
    for repair, status in ((False, "drift"), (True, "repaired")):
        body["verify"]["repair"] = repair
        answer = api("POST", "/lunshare/verify", body)["verify"]
        assert answer["counts"][status] == 1
        (target,) = answer["targets"]
        assert (target["volume_id"], target["status"]) == (volume["id"], status)
        (drift,) = target["drift"]
        assert (drift["kind"], drift["initiator"]) == ("wider", initiator(host))
        assert drift["left"] is not repair
    assert acls[initiator(host)].mode is Mode.RO
    unknown = {"verify": {"volume_id": str(uuid.uuid4())}}
    assert unknown["verify"]["volume_id"] in api.fault(
        404, "POST", "/lunshare/verify", unknown
    )
    wrong = {"verify": {"repair": "yes"}}
    assert "repair" in api.fault(400, "POST", "/lunshare/verify", wrong)
    assert "verify" in api.fault(400, "POST", "/lunshare/verify", {})
