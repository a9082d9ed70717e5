# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""/lunshare/fences: a host is fenced by one request, and the answer is the proof."""

from __future__ import annotations

from lunshare.drivers.errors import DeadlineExceeded
from tests.api.calls import Api
from tests.api.test_handover import attached
from tests.stands.node import Node, connector, initiator

PATH = "/lunshare/fences"
HANGS = DeadlineExceeded("a write in progress", 1.0)


def test_the_answer_is_the_proof_and_can_be_read_later(api: Api, node: Node) -> None:
    shared = api.type(multiattach="<is> True")["id"]
    volume_id = api.volume(volume_type=shared)["id"]
    omega = attached(api, volume_id, "omega", "rw")
    attached(api, volume_id, "beta", "ro")
    with node.target("api").failures.fail("apply.before", HANGS):
        pending = api("PUT", f"{PATH}/omega", {"fence": {}}, status=202)["fence"]
        assert api("GET", f"{PATH}/omega")["fence"]["status"] == "fence pending"
    assert pending["status"] == "fence pending"
    (of_volume,) = pending["volumes"]
    assert (of_volume["status"], of_volume["fenced_at"]) == ("fence pending", None)
    assert "a write in progress" in of_volume["reason"]
    done = api("PUT", f"{PATH}/omega", {"fence": {"writes_only": False}})["fence"]
    assert (done["host"], done["fence"], done["status"]) == ("omega", "all", "fenced")
    assert done["initiators"] == [initiator("omega")]
    (proof,) = done["volumes"]
    assert proof["fenced_at"] >= done["since"]
    assert proof == {
        "volume_id": volume_id,
        "attachment_id": omega,
        "host": "omega",
        "initiator": initiator("omega"),
        "mode": "rw",
        "status": "fenced",
        "fenced_at": proof["fenced_at"],
        "fencing_generation": 1,
        "reason": None,
    }
    assert api("GET", f"{PATH}/omega")["fence"] == done
    assert api("GET", PATH)["fences"] == [done]
    assert api("GET", f"/attachments/{omega}")["attachment"]["fence"] == "fenced"
    body = {"attachment": {"volume_uuid": volume_id, "connector": connector("omega")}}
    assert "unfence omega" in api.fault(409, "POST", "/attachments", body)
    opened = api("DELETE", f"{PATH}/omega")["fence"]
    assert (opened["status"], opened["fence"]) == ("unfenced", None)
    assert [each["status"] for each in opened["volumes"]] == ["open"]
    assert "omega" in api.fault(404, "GET", f"{PATH}/omega")
    again = api("DELETE", f"{PATH}/omega")["fence"]
    assert again["volumes"] == opened["volumes"], "it looks at the target once more"


def test_only_writing_is_taken(api: Api, node: Node) -> None:
    shared = api.type(multiattach="<is> True")["id"]
    volume_id = api.volume(volume_type=shared)["id"]
    attached(api, volume_id, "gamma", "rw")
    path = f"{PATH}/{initiator('gamma').upper()}"
    body = {"fence": {"writes_only": True}}
    shown = api("PUT", path, body)["fence"]
    assert (shown["host"], shown["fence"]) == (initiator("gamma"), "writes")
    with node.target("api").failures.fail("apply.before", HANGS):
        opened = api("DELETE", path, status=202)["fence"]
    assert (opened["status"], opened["volumes"][0]["status"]) == ("pending", "pending")


def test_what_names_no_host_is_refused(api: Api) -> None:
    assert "host" in api.fault(400, "PUT", f"{PATH}/{'x' * 256}", {"fence": {}})
    for blank in ("%20alpha", "alpha%20", "%20"):
        assert "blank" in api.fault(400, "PUT", f"{PATH}/{blank}", {"fence": {}})
        assert api("DELETE", f"{PATH}/{blank}")["fence"]["status"] == "unfenced"
    wrong = {"fence": {"writes_only": "yes"}}
    assert "writes_only" in api.fault(400, "PUT", f"{PATH}/alpha", wrong)
    assert "fence" in api.fault(400, "PUT", f"{PATH}/alpha", {})
