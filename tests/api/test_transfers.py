# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume goes to another project, which has the key."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.api.calls import Api
from tests.api.test_api_attachments import name
from tests.stands.node import Node, connector

NOWHERE = "11111111-2222-3333-4444-555555555555"
NEW, OLD = "/volume-transfers", "/os-volume-transfer"


def offer(api: Api, volume: dict[str, Any], path: str = NEW, **more: Any) -> Any:
    asked = {"transfer": {"volume_id": volume["id"], **more}}
    return api("POST", path, asked, 202)["transfer"]


def take(api: Api, transfer: Any, status: int = 202, path: str = NEW) -> Any:
    asked = {"accept": {"auth_key": transfer["auth_key"]}}
    where = f"{path}/{transfer['id']}/accept"
    if status != 202:
        return api.fault(status, "POST", where, asked)
    return api("POST", where, asked, 202)["transfer"]


@pytest.mark.parametrize(("path", "version"), [(NEW, "3.55"), (OLD, "3.0")])
def test_a_volume_goes_to_the_project_with_the_key(
    api: Api, node: Node, path: str, version: str
):
    owner, other = api.at(version), Api(node.assembly.app, version)
    volume = owner.volume()
    snapshot = owner.snapshot(volume["id"])
    transfer = offer(owner, volume, path, name="gift")
    assert api.shown(volume["id"])["status"] == "awaiting-transfer"
    (listed,) = owner("GET", path)["transfers"]
    assert set(listed) == {"id", "name", "volume_id", "links"}
    (full,) = owner("GET", f"{path}/detail")["transfers"]
    assert full == owner("GET", f"{path}/{transfer['id']}")["transfer"]
    assert "auth_key" not in full
    assert ("no_snapshots" in full) is (path == NEW)
    assert "accepted" not in full
    assert other("GET", path)["transfers"] == []

    taken = take(other, transfer, path=path)
    assert (taken["name"], taken["volume_id"]) == ("gift", volume["id"])
    shown = other.shown(volume["id"])
    assert shown["status"] == "available"
    assert shown["os-vol-tenant-attr:tenant_id"] == other.project
    assert api("GET", "/volumes")["volumes"] == []
    moved = [row["id"] for row in other("GET", "/snapshots")["snapshots"]]
    assert moved == ([snapshot["id"]] if path == NEW else [])
    owner.fault(404, "GET", f"{path}/{transfer['id']}")
    take(other, transfer, 404, path)


def test_snapshots_stay_where_the_owner_wants_it(api: Api, node: Node):
    volume = api.volume()
    snapshot = api.snapshot(volume["id"])
    transfer = offer(api, volume, no_snapshots=True)
    assert transfer["no_snapshots"] is True
    take(Api(node.assembly.app), transfer)
    assert [row["id"] for row in api("GET", "/snapshots")["snapshots"]] == [
        snapshot["id"]
    ]


def test_a_snapshot_that_is_not_available_keeps_the_volume(api: Api):
    volume = api.volume()
    snapshot = api.snapshot(volume["id"])
    where = f"/snapshots/{snapshot['id']}/action"
    api("POST", where, {"os-reset_status": {"status": "error"}}, 202)
    asked = {"transfer": {"volume_id": volume["id"]}}
    assert snapshot["id"] in api.fault(400, "POST", NEW, asked)
    offer(api, volume, no_snapshots="true")


def test_the_history_is_shown_from_3_57_on(api: Api):
    transfer = offer(api, api.volume())
    shown = api.at("3.57")("GET", f"{NEW}/{transfer['id']}")["transfer"]
    assert shown["source_project_id"] == api.project
    assert shown["destination_project_id"] is None
    assert shown["accepted"] is False
    before = api.at("3.56")("GET", f"{NEW}/{transfer['id']}")["transfer"]
    assert "accepted" not in before
    api.at("3.54").fault(404, "GET", NEW)
    api.at("3.54").fault(404, "POST", NEW, {"transfer": {"volume_id": NOWHERE}})


def test_a_wrong_key_takes_nothing(api: Api, node: Node):
    volume, other = api.volume(), Api(node.assembly.app)
    transfer = offer(api, volume)
    wrong = {**transfer, "auth_key": "0" * 32}
    assert "auth_key" in take(other, wrong, 400)
    assert api.shown(volume["id"])["status"] == "awaiting-transfer"
    path = f"{NEW}/{transfer['id']}/accept"
    bodies: list[Any] = [{}, {"accept": {}}, {"accept": {"auth_key": ""}}]
    for bad in bodies:
        other.fault(400, "POST", path, bad)
    assert NOWHERE in take(other, {**transfer, "id": NOWHERE}, 404)


def test_the_key_is_not_stored(api: Api, node: Node):
    transfer = offer(api, api.volume())
    with closing(sqlite3.connect(node.path / "lunshare.sqlite")) as database:
        (row,) = database.execute(
            "SELECT * FROM transfers WHERE id = ?", [transfer["id"]]
        ).fetchall()
    assert transfer["auth_key"] not in row


def test_a_volume_is_available_after_its_offer_is_withdrawn(api: Api, node: Node):
    volume = api.volume()
    transfer = offer(api, volume)
    asked = {"attachment": {"volume_uuid": volume["id"]}}
    assert "awaiting-transfer" in api.fault(400, "POST", "/attachments", asked)
    api.fault(400, "DELETE", f"/volumes/{volume['id']}")
    api.fault(400, "POST", NEW, {"transfer": {"volume_id": volume["id"]}})
    api("DELETE", f"{NEW}/{transfer['id']}", status=202)
    assert api.shown(volume["id"])["status"] == "available"
    api.fault(404, "DELETE", f"{NEW}/{transfer['id']}")
    take(Api(node.assembly.app), transfer, 404)


def test_a_reset_ends_an_offer(api: Api, node: Node):
    volume = api.volume()
    transfer = offer(api, volume)
    api.act(volume["id"], {"os-reset_status": {"status": "available"}})
    assert api("GET", NEW)["transfers"] == []
    take(Api(node.assembly.app), transfer, 404)
    again = offer(api, volume)
    api.act(volume["id"], {"os-reset_status": {"status": "error"}})
    api.act(volume["id"], {"os-reset_status": {"status": "available"}})
    take(Api(node.assembly.app), again, 404)


@pytest.mark.parametrize(
    "fields", [{}, {"volume_id": "x"}, {"volume_id": NOWHERE, "colour": "red"}], ids=str
)
def test_an_invalid_offer_is_400(api: Api, fields: dict[str, Any]):
    api.fault(400, "POST", NEW, {"transfer": fields})


def test_only_an_available_volume_is_offered(api: Api):
    asked: dict[str, Any] = {"transfer": {"volume_id": NOWHERE}}
    assert NOWHERE in api.fault(404, "POST", NEW, asked)
    volume = api.volume()
    api.attachment(volume["id"], connector=connector(name()))
    asked = {"transfer": {"volume_id": volume["id"]}}
    assert "attaching" in api.fault(400, "POST", NEW, asked)


def test_offers_are_listed_in_pages(api: Api):
    made = [offer(api, api.volume(), name=f"n{n}")["id"] for n in range(3)]
    page = api("GET", f"{NEW}?limit=2&sort=name:asc")
    assert [row["id"] for row in page["transfers"]] == made[:2]
    assert page["transfers_links"]
    rest = api("GET", f"{NEW}?limit=2&sort=name:asc&marker={made[1]}")
    assert [row["id"] for row in rest["transfers"]] == made[2:]
    (one,) = api("GET", f"{NEW}?name=n1")["transfers"]
    assert one["id"] == made[1]
