# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Keys of SCSI reservations: which host has one, and what would drop it."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.fake.fake_storage import storage
from lunshare.drivers.values import Registration
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator

KEY, HELD = "0x00000000000000a1", "Write Exclusive Access, Registrants Only"
ALPHA, BETA = "reserving-alpha", "reserving-beta"


class Reserved:
    """A volume of two hosts; alpha has a key, and holds the reservation."""

    def __init__(self, api: Api) -> None:
        self.api = api
        specs = {"multiattach": "<is> True", "lunshare:reservations": "<is> True"}
        kind = api.type(**specs)["id"]
        self.id = str(api.volume(volume_type=kind)["id"])
        self.rows = {
            host: self._attach(host, connector(host)) for host in (ALPHA, BETA)
        }
        self.register(Registration(initiator(ALPHA), KEY, HELD))

    def _attach(self, host: str, sent: Any) -> str:
        fields = {"volume_uuid": self.id, "connector": sent}
        made = self.api("POST", "/attachments", {"attachment": fields})["attachment"]
        return str(made["id"])

    def register(self, *found: Registration) -> None:
        storage("api").registrations[self.id] = [*found]

    def lines(self) -> dict[str, Any]:
        answer = self.api("GET", f"/lunshare/hosts?volume_id={self.id}")
        return {line["host"]: line for line in answer["hosts"]}


@pytest.fixture
def reserved(api: Api) -> Reserved:
    return Reserved(api)


def test_hosts_show_who_has_a_key_and_who_holds_the_reservation(
    reserved: Reserved,
) -> None:
    lines = reserved.lines()
    shown = {
        host: (lines[host]["reservation_keys"], lines[host]["reservation"])
        for host in (ALPHA, BETA)
    }
    assert shown == {ALPHA: ([KEY], HELD), BETA: ([], None)}


def test_a_detach_that_would_drop_a_key_is_refused_unless_it_is_forced(
    reserved: Reserved,
) -> None:
    """Nothing is begun; a host without a key is detached as ever."""
    path = f"/attachments/{reserved.rows[ALPHA]}"
    message = reserved.api.fault(409, "DELETE", path)
    assert message == (
        f"force: host {ALPHA} has the reservation key {KEY} of volume {reserved.id} and"
        f" holds the reservation ({HELD}), and a detach drops it: unregister the key on"
        f" the host, or delete attachment {reserved.rows[ALPHA]} with force=true"
    )
    assert reserved.lines()[ALPHA]["allowed"] == "rw"
    assert reserved.api("GET", path)["attachment"]["status"] != "detaching"
    reserved.api.fault(409, "DELETE", f"{path}?force=false")
    assert "force" in reserved.api.fault(400, "DELETE", f"{path}?force=perhaps")
    reserved.api("DELETE", f"/attachments/{reserved.rows[BETA]}")
    reserved.api("DELETE", f"{path}?force=true")
    assert reserved.lines() == {}


def test_a_batch_with_one_host_that_has_a_key_is_refused_as_a_whole(
    reserved: Reserved,
) -> None:
    ids = [*reserved.rows.values()]
    body: dict[str, Any] = {"lunshare:detach": {"attachments": ids}}
    assert KEY in reserved.api.refused(409, reserved.id, body)
    assert len(reserved.lines()) == 2
    body["lunshare:detach"]["force"] = True
    reserved.api("POST", f"/volumes/{reserved.id}/action", body)
    assert reserved.lines() == {}


def test_the_actions_of_older_clients_are_refused_too(reserved: Reserved) -> None:
    """os-force_detach is the one with force."""
    api, row = reserved.api, reserved.rows[ALPHA]
    api.complete(row)
    assert KEY in api.refused(409, reserved.id, {"os-detach": {"attachment_id": row}})
    action = {"os-force_detach": {"attachment_id": row, "connector": None}}
    api.act(reserved.id, action)
    assert [*reserved.lines()] == [BETA]


def test_another_initiator_does_not_replace_one_that_has_a_key(
    reserved: Reserved,
) -> None:
    body = {"attachment": {"connector": connector("reserving-gamma")}}
    path = f"/attachments/{reserved.rows[ALPHA]}"
    assert KEY in reserved.api.fault(409, "PUT", path, body)
    same = {"attachment": {"connector": connector(ALPHA)}}
    reserved.api("PUT", path, same)


def test_a_host_with_another_attachment_keeps_its_key(reserved: Reserved) -> None:
    again = reserved._attach(ALPHA, connector(ALPHA))
    reserved.api("DELETE", f"/attachments/{again}")
    assert reserved.lines()[ALPHA]["reservation_keys"] == [KEY]
    reserved.api.fault(409, "DELETE", f"/attachments/{reserved.rows[ALPHA]}")


def test_who_takes_the_access_of_a_host_is_not_refused(reserved: Reserved) -> None:
    """A fence, and a handover with force, mean to drop the key."""
    fence = f"/lunshare/fences/{ALPHA}"
    answer = reserved.api("PUT", fence, {"fence": {}})
    assert answer["fence"]["status"] == "fenced"
    reserved.api("DELETE", fence)
    action = {"to": reserved.rows[BETA], "force": True}
    path = f"/volumes/{reserved.id}/action"
    reserved.api("POST", path, {"lunshare:handover": action}, 202)
    assert [*reserved.lines()] == [BETA]


def test_a_volume_of_another_type_is_not_even_asked(api: Api, node: Node) -> None:
    """Its target refuses reservations, and its detach reads nothing more."""
    volume = api.shared_volume()["id"]
    row = api.attachment(volume, connector=connector(ALPHA))["id"]
    storage("api").registrations[volume] = [Registration(initiator(ALPHA), KEY)]
    with node.target("api").failures.fail(
        "observe", TargetFailed("-", "not to be asked")
    ):
        api("DELETE", f"/attachments/{row}")


def test_a_target_that_does_not_answer_refuses_what_is_not_forced(
    reserved: Reserved, node: Node
) -> None:
    path = f"/attachments/{reserved.rows[ALPHA]}"
    with node.target("api").failures.fail("observe", TargetFailed("-", "it hangs")):
        assert reserved.api.send("DELETE", path).status_code >= 500
        reserved.api("DELETE", f"{path}?force=true")
