# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The actions of a volume by which older clients attach and detach hosts."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from lunshare.drivers.errors import TargetFailed
from tests.api.calls import Api
from tests.api.test_api_attachments import name, node_live
from tests.stands.node import Node, connector, initiator

NOWHERE = "11111111-2222-3333-4444-555555555555"
RESERVE: dict[str, Any] = {"os-reserve": None}
UNRESERVE: dict[str, Any] = {"os-unreserve": None}
BEGIN: dict[str, Any] = {"os-begin_detaching": None}
ROLL: dict[str, Any] = {"os-roll_detaching": None}
DETACH: dict[str, Any] = {"os-detach": {}}


def attach(**fields: Any) -> dict[str, Any]:
    return {"os-attach": {"mountpoint": "/dev/vdb", **fields}}


def terminate(host: str) -> dict[str, Any]:
    return {"os-terminate_connection": {"connector": connector(host)}}


def initialize(api: Api, volume: dict[str, Any], host: str, **more: Any) -> Any:
    body = {"os-initialize_connection": {"connector": connector(host, **more)}}
    return api("POST", f"/volumes/{volume['id']}/action", body)["connection_info"]


def status(api: Api, volume: dict[str, Any]) -> str:
    return str(api.shown(volume["id"])["status"])


def attached(api: Api, volume: dict[str, Any], host: str) -> str:
    """Attach a host by every action; the id of its attachment."""
    api.act(volume["id"], RESERVE)
    initialize(api, volume, host)
    api.act(volume["id"], attach(host_name=host))
    shown = api.shown(volume["id"])["attachments"]
    (found,) = [row for row in shown if row["host_name"] == host]
    return str(found["attachment_id"])


def test_a_host_is_attached_and_detached_by_all_actions(api: Api, node: Node):
    volume, host = api.volume(), name()
    api.act(volume["id"], RESERVE)
    assert status(api, volume) == "attaching"
    info = initialize(api, volume, host)
    assert info["driver_volume_type"] == "iscsi"
    assert info["data"]["target_lun"] == 0
    assert info["data"]["access_mode"] == "rw"
    assert info["data"]["auth_password"]
    assert node_live(node, volume) == {initiator(host): "rw"}
    assert initialize(api, volume, host) == info
    api.act(volume["id"], attach(host_name=host, mode="rw"))
    shown = api.shown(volume["id"])
    assert shown["status"] == "in-use"
    (row,) = shown["attachments"]
    assert (row["host_name"], row["device"]) == (host, "/dev/vdb")
    api.act(volume["id"], attach(host_name=host))  # again

    api.act(volume["id"], BEGIN)
    assert status(api, volume) == "detaching"
    assert len(api.shown(volume["id"])["attachments"]) == 1
    assert initialize(api, volume, host) == info  # to know what to disconnect
    api.act(volume["id"], terminate(host))
    assert node_live(node, volume) == {}
    assert status(api, volume) == "detaching"
    api.act(volume["id"], terminate(host))  # again
    api.act(volume["id"], {"os-detach": {"attachment_id": row["attachment_id"]}})
    assert status(api, volume) == "available"
    api.act(volume["id"], DETACH)  # nothing is attached
    again = {"os-detach": {"attachment_id": row["attachment_id"]}}
    assert row["attachment_id"] in api.refused(404, volume["id"], again)


def test_a_reservation_excludes_others_and_ends(api: Api):
    volume = api.volume()
    api.act(volume["id"], RESERVE)
    assert "takes one" in api.refused(400, volume["id"], RESERVE)
    asked = {"attachment": {"volume_uuid": volume["id"]}}
    api.fault(400, "POST", "/attachments", asked)
    api.refused(400, volume["id"], {"os-extend": {"new_size": 2}})
    api.fault(400, "DELETE", f"/volumes/{volume['id']}")
    for _ in range(2):
        api.act(volume["id"], UNRESERVE)
        assert status(api, volume) == "available"
    for action in (RESERVE, UNRESERVE, BEGIN, ROLL, DETACH, terminate("h")):
        assert NOWHERE in api.refused(404, NOWHERE, action)


def test_a_volume_that_is_not_in_use_cannot_begin_to_detach(api: Api):
    volume = api.volume()
    assert "in-use" in api.refused(400, volume["id"], BEGIN)
    api.act(volume["id"], ROLL)  # nothing to withdraw
    attached(api, volume, name())
    api.act(volume["id"], BEGIN)
    assert "detaching" in api.refused(400, volume["id"], BEGIN)
    (found,) = api("GET", "/volumes?status=detaching")["volumes"]
    assert found["id"] == volume["id"]
    assert api("GET", "/volumes?status=in-use")["volumes"] == []
    api.act(volume["id"], ROLL)
    assert status(api, volume) == "in-use"
    (found,) = api("GET", "/volumes?status=in-use")["volumes"]
    assert found["id"] == volume["id"]


def test_a_volume_is_detaching_for_one_host_and_in_use_for_two(api: Api):
    volume = api.shared_volume()
    first = attached(api, volume, name())
    attached(api, volume, name())
    api.act(volume["id"], BEGIN)  # it is unknown which host is meant
    assert status(api, volume) == "in-use"
    api("DELETE", f"/attachments/{first}")
    api.act(volume["id"], BEGIN)
    assert status(api, volume) == "detaching"


def test_no_action_takes_the_target_from_another_host(api: Api, node: Node):
    volume = api.shared_volume()
    one, two, three = name(), name(), name()
    first, second = attached(api, volume, one), attached(api, volume, two)
    api.attachment(volume["id"], connector=connector(three))
    every = {initiator(host): "rw" for host in (one, two, three)}
    assert node_live(node, volume) == every

    sentence = api.refused(400, volume["id"], DETACH)
    assert sentence.startswith("os-detach.attachment_id: ")
    sentence = api.refused(409, volume["id"], terminate(three))
    assert "delete that attachment" in sentence
    api.act(volume["id"], terminate(name()))  # a host that is not attached
    api.act(volume["id"], UNRESERVE)
    assert node_live(node, volume) == every

    api.act(volume["id"], terminate(one))
    del every[initiator(one)]
    assert node_live(node, volume) == every
    api.act(volume["id"], {"os-detach": {"attachment_id": first}})
    api.act(volume["id"], {"os-detach": {"attachment_id": second}})
    assert list(node_live(node, volume)) == [initiator(three)]
    api.act(volume["id"], DETACH)  # exactly one is left
    assert node_live(node, volume) == {}
    assert status(api, volume) == "available"


def test_two_servers_of_one_host_share_its_access(api: Api, node: Node):
    volume, host = api.shared_volume(), name()
    ids = []
    for server in (str(uuid.uuid4()), str(uuid.uuid4())):
        api.act(volume["id"], RESERVE)
        initialize(api, volume, host)
        api.act(volume["id"], attach(instance_uuid=server))
        shown = api.shown(volume["id"])["attachments"]
        ids += [r["attachment_id"] for r in shown if r["server_id"] == server]
    api.act(volume["id"], terminate(host))  # whose is not said
    assert list(node_live(node, volume)) == [initiator(host)]
    api.act(volume["id"], {"os-detach": {"attachment_id": ids[0]}})
    assert list(node_live(node, volume)) == [initiator(host)]
    api.act(volume["id"], {"os-detach": {"attachment_id": ids[1]}})
    assert node_live(node, volume) == {}


def test_hosts_that_attach_at_the_same_time_name_themselves(api: Api, node: Node):
    volume = api.shared_volume()
    one, two = name(), name()
    for host in (one, two):
        api.act(volume["id"], RESERVE)
        initialize(api, volume, host)
    server = str(uuid.uuid4())
    sentence = api.refused(400, volume["id"], attach(instance_uuid=server))
    assert sentence.startswith("os-attach.host_name: ")
    api.act(volume["id"], attach(host_name=two, instance_uuid=server))
    api.act(volume["id"], attach(host_name=one))
    shown = api.shown(volume["id"])["attachments"]
    assert {r["host_name"]: r["server_id"] for r in shown} == {two: server, one: None}
    assert len(node_live(node, volume)) == 2


def test_a_connection_without_a_reservation_ends_with_it(api: Api, node: Node):
    volume, host = api.volume(), name()
    initialize(api, volume, host)
    assert status(api, volume) == "attaching"
    other = {"os-initialize_connection": {"connector": connector(name())}}
    assert "takes one" in api.refused(400, volume["id"], other)
    assert list(node_live(node, volume)) == [initiator(host)]
    api.act(volume["id"], terminate(host))
    assert node_live(node, volume) == {}
    assert status(api, volume) == "available"


def test_the_host_of_an_attachment_asks_an_action_for_its_connection(
    api: Api, node: Node
):
    volume, host = api.volume(), name()
    asked = {"volume_uuid": volume["id"], "connector": connector(host), "mode": "ro"}
    row = api("POST", "/attachments", {"attachment": asked})["attachment"]
    expected = row["connection_info"]
    data = initialize(api, volume, host)["data"]
    assert data == {key: expected[key] for key in data}
    assert data["access_mode"] == "ro"
    (seen,) = api("GET", f"/attachments?volume_id={volume['id']}")["attachments"]
    assert seen["id"] == row["id"]
    other = {"os-initialize_connection": {"connector": connector(name())}}
    assert "takes one" in api.refused(400, volume["id"], other)
    assert row["id"] in api.refused(409, volume["id"], terminate(host))
    assert node_live(node, volume) == {initiator(host): "ro"}
    api("DELETE", f"/attachments/{row['id']}")
    assert status(api, volume) == "available"


def test_a_reservation_survives_the_end_of_its_connection(api: Api, node: Node):
    volume, host = api.volume(), name()
    api.act(volume["id"], RESERVE)
    initialize(api, volume, host)
    api.act(volume["id"], terminate(host))
    assert node_live(node, volume) == {}
    assert status(api, volume) == "attaching"
    api.act(volume["id"], UNRESERVE)
    assert status(api, volume) == "available"


def test_unreserve_of_a_plain_volume_closes_what_is_open(api: Api, node: Node):
    volume = api.volume()
    api.act(volume["id"], RESERVE)
    initialize(api, volume, name())
    api.act(volume["id"], UNRESERVE)
    assert node_live(node, volume) == {}
    assert status(api, volume) == "available"


def test_the_mode_of_os_attach_holds_at_the_target(api: Api, node: Node):
    volume, host = api.volume(), name()
    initialize(api, volume, host)
    assert node_live(node, volume) == {initiator(host): "rw"}
    api.act(volume["id"], attach(host_name=host, mode="ro"))
    assert node_live(node, volume) == {initiator(host): "ro"}
    (row,) = api("GET", f"/attachments/detail?volume_id={volume['id']}")["attachments"]
    assert row["attach_mode"] == "ro"
    assert row["connection_info"]["access_mode"] == "ro"


def test_a_readonly_volume_refuses_rw(api: Api, node: Node):
    volume, host = api.volume(), name()
    api.act(volume["id"], {"os-update_readonly_flag": {"readonly": True}})
    assert initialize(api, volume, host)["data"]["access_mode"] == "ro"
    wanted = attach(host_name=host, mode="rw")
    assert api.refused(400, volume["id"], wanted).startswith("os-attach.mode: ")
    assert node_live(node, volume) == {initiator(host): "ro"}
    api.act(volume["id"], attach(host_name=host))
    assert status(api, volume) == "in-use"


def test_a_volume_is_attached_with_no_connection(api: Api, node: Node):
    volume, server = api.volume(), str(uuid.uuid4())
    api.act(volume["id"], attach(instance_uuid=server.upper()))
    api.act(volume["id"], attach(instance_uuid=server))
    shown = api.shown(volume["id"])
    assert shown["status"] == "in-use"
    assert [row["server_id"] for row in shown["attachments"]] == [server]
    other = attach(instance_uuid=str(uuid.uuid4()))
    assert "takes one" in api.refused(400, volume["id"], other)
    assert node_live(node, volume) == {}
    api.act(volume["id"], {"os-detach": None})
    assert status(api, volume) == "available"


BAD: list[dict[str, Any]] = [
    {"os-attach": {"mountpoint": "/dev/vdb"}},
    {"os-attach": {"host_name": "h"}},
    {"os-attach": {"mountpoint": "", "host_name": "h"}},
    {"os-attach": {"mountpoint": "x", "host_name": "h", "mode": "wr"}},
    {"os-attach": {"mountpoint": "x", "instance_uuid": "no"}},
    {"os-attach": {"mountpoint": "x", "host_name": "h", "colour": "red"}},
    {"os-attach": None},
    {"os-detach": {"attachment_id": "x"}},
    {"os-detach": []},
    {"os-initialize_connection": {}},
    {"os-initialize_connection": {"connector": {}}},
    {"os-initialize_connection": {"connector": {"host": "h"}}},
    {"os-initialize_connection": {"connector": connector("h", initiator="x")}},
    {"os-terminate_connection": {"connector": {}}},
    {"os-terminate_connection": {}},
]


@pytest.mark.parametrize("action", BAD, ids=str)
def test_an_invalid_body_is_400_and_attaches_nothing(api: Api, action: dict[str, Any]):
    volume = api.volume()
    api.refused(400, volume["id"], action)
    assert status(api, volume) == "available"


TERMINATE_NULL: dict[str, Any] = {"os-terminate_connection": {"connector": None}}


def test_no_connector_ends_the_only_host(api: Api, node: Node):
    volume, host = api.volume(), name()
    api.act(volume["id"], TERMINATE_NULL)  # nobody has it
    attached(api, volume, host)
    api.act(volume["id"], TERMINATE_NULL)
    assert node_live(node, volume) == {}
    api.act(volume["id"], TERMINATE_NULL)  # again
    api.act(volume["id"], DETACH)
    assert status(api, volume) == "available"


def test_no_connector_ends_none_of_several_hosts(api: Api, node: Node):
    volume = api.shared_volume()
    one, two = name(), name()
    attached(api, volume, one)
    attached(api, volume, two)
    sentence = api.refused(400, volume["id"], TERMINATE_NULL)
    assert sentence.startswith("os-terminate_connection.connector: ")
    assert "2 hosts" in sentence
    assert node_live(node, volume) == {initiator(one): "rw", initiator(two): "rw"}


def test_no_connector_ends_no_host_of_the_attachments_api(api: Api, node: Node):
    volume, host = api.volume(), name()
    api.attachment(volume["id"], connector=connector(host))
    assert "delete that" in api.refused(409, volume["id"], TERMINATE_NULL)
    assert node_live(node, volume) == {initiator(host): "rw"}


def test_a_target_that_refuses_leaves_the_reservation_to_be_given_up(
    api: Api, node: Node
):
    volume, host = api.volume(), name()
    error = TargetFailed(volume["id"], "because of the test")
    body = {"os-initialize_connection": {"connector": connector(host)}}
    api.act(volume["id"], RESERVE)
    with node.target("api").failures.fail("apply.before", error):
        api.refused(500, volume["id"], body)
    assert node_live(node, volume) == {}
    api.act(volume["id"], UNRESERVE)
    assert api("GET", f"/attachments?volume_id={volume['id']}")["attachments"] == []
    with node.target("api").failures.fail("apply.before", error):
        api.refused(500, volume["id"], body)
    assert api("GET", f"/attachments?volume_id={volume['id']}")["attachments"] == []
    assert status(api, volume) == "available"


def test_an_access_that_may_be_open_is_closed_by_a_retry(api: Api, node: Node):
    volume, host = api.volume(), name()
    attached(api, volume, host)
    error = TargetFailed(volume["id"], "because of the test")
    with node.target("api").failures.fail("remove.before", error):
        api.refused(500, volume["id"], terminate(host))
        assert status(api, volume) == "detaching"
        other = {"os-initialize_connection": {"connector": connector(name())}}
        api.refused(400, volume["id"], other)
    assert node_live(node, volume) == {initiator(host): "rw"}
    api.act(volume["id"], terminate(host))
    assert node_live(node, volume) == {}


@pytest.mark.parametrize("shared", [True, False])
def test_what_a_killed_daemon_did_not_finish_is_finished(tmp_path, shared: bool):
    node = Node(tmp_path).start()
    api = Api(node.assembly.app)
    volume, host = (api.shared_volume() if shared else api.volume()), name()
    api.act(volume["id"], RESERVE)
    later = Node(tmp_path).start()  # as after kill -9
    api.client = Api(later.assembly.app).client
    assert status(api, volume) == "attaching"  # it was acknowledged
    api.act(volume["id"], UNRESERVE)
    attached(api, volume, host)
    error = TargetFailed(volume["id"], "because of the test")
    with later.target().failures.fail("remove.before", error):
        api.refused(500, volume["id"], terminate(host))
    assert later.live(volume["id"])
    last = Node(tmp_path).start()
    api.client = Api(last.assembly.app).client
    assert last.live(volume["id"]) == {}
    assert status(api, volume) == "detaching"
    api.act(volume["id"], DETACH)
    assert status(api, volume) == "available"
    for each in (node, later, last):
        each.close()


def test_a_repeated_reserve_without_an_answer_gets_the_first_one(tmp_path):
    node = Node(tmp_path).start()
    volume = Api(node.assembly.app).volume()
    from tests.stands.node import CTX

    node.services.legacy.reserve(CTX, volume["id"])
    later = Node(tmp_path).start()
    later.services.legacy.reserve(CTX, volume["id"])  # no 400
    api = Api(later.assembly.app)
    query = f"/attachments?all_tenants=1&volume_id={volume['id']}"
    assert len(api("GET", query)["attachments"]) == 1
    for each in (node, later):
        each.close()
