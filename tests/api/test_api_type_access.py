# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Private volume types, the projects that may use them, and default types."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from lunshare.agent.model.errors import NotFound
from lunshare.agent.model.records import NewVolume
from tests.api.calls import Api
from tests.stands.node import CTX, Node

NOWHERE = "11111111-2222-3333-4444-555555555555"
PUBLIC = "os-volume-type-access:is_public"


def private(api: Api, **specs: str) -> dict[str, Any]:
    fields = {"name": uuid.uuid4().hex, PUBLIC: False, "extra_specs": specs}
    made: dict[str, Any] = api("POST", "/types", {"volume_type": fields})["volume_type"]
    return made


def change(api: Api, kind: dict[str, Any], name: str, project: str) -> Any:
    body = {name: {"project": project}}
    return api("POST", f"/types/{kind['id']}/action", body, 202)


def listed(api: Api, kind: dict[str, Any]) -> list[str]:
    found = api("GET", f"/types/{kind['id']}/os-volume-type-access")
    rows = found["volume_type_access"]
    assert {row["volume_type_id"] for row in rows} <= {kind["id"]}
    return [row["project_id"] for row in rows]


def test_access_is_added_listed_and_removed(api: Api):
    kind = private(api)
    assert listed(api, kind) == []
    assert change(api, kind, "addProjectAccess", api.project) is None
    change(api, kind, "addProjectAccess", "q")
    assert set(listed(api, kind)) == {api.project, "q"}
    assert change(api, kind, "removeProjectAccess", "q") is None
    assert listed(api, kind) == [api.project]


def test_a_private_type_is_in_the_list_of_its_projects(api: Api):
    kind, hidden = private(api), private(api)
    change(api, kind, "addProjectAccess", api.project)

    def ids(query: str) -> set[str]:
        found = api("GET", f"/types{query}")["volume_types"]
        return {row["id"] for row in found} & {kind["id"], hidden["id"]}

    assert ids("") == ids("?is_public=true") == {kind["id"]}
    assert (
        ids("?is_public=false") == ids("?is_public=none") == {kind["id"], hidden["id"]}
    )


def test_access_is_added_and_removed_once(api: Api):
    kind = private(api)
    path = f"/types/{kind['id']}/action"
    body = {"addProjectAccess": {"project": "p"}}
    api("POST", path, body, 202)
    assert "project p" in api.fault(409, "POST", path, body)
    body = {"removeProjectAccess": {"project": "p"}}
    api("POST", path, body, 202)
    assert "p could not be found" in api.fault(404, "POST", path, body)


def test_a_public_type_has_no_access_list(api: Api):
    kind = api.type()
    assert "public" in api.fault(
        404, "GET", f"/types/{kind['id']}/os-volume-type-access"
    )
    for name in ("addProjectAccess", "removeProjectAccess"):
        body = {name: {"project": "p"}}
        assert "public" in api.fault(409, "POST", f"/types/{kind['id']}/action", body)


def test_an_unknown_type_is_404(api: Api):
    api.fault(404, "GET", f"/types/{NOWHERE}/os-volume-type-access")
    for name in ("addProjectAccess", "removeProjectAccess"):
        body = {name: {"project": "p"}}
        assert NOWHERE in api.fault(404, "POST", f"/types/{NOWHERE}/action", body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"colour": {"project": "p"}},
        {"addProjectAccess": None},
        {"addProjectAccess": {}},
        {"addProjectAccess": {"project": ""}},
        {"addProjectAccess": {"project": None}},
        {"addProjectAccess": {"project": "p" * 256}},
        {"addProjectAccess": {"project": "a\nb"}},
        {"addProjectAccess": {"project": "p", "colour": "red"}},
        {"addProjectAccess": {"project": "p"}, "removeProjectAccess": {"project": "p"}},
    ],
    ids=str,
)
def test_a_wrong_action_is_400(api: Api, body: dict[str, Any]):
    kind = private(api)
    api.fault(400, "POST", f"/types/{kind['id']}/action", body)
    assert listed(api, kind) == []


def test_a_deleted_type_leaves_no_access(api: Api):
    kind = private(api)
    change(api, kind, "addProjectAccess", api.project)
    api("DELETE", f"/types/{kind['id']}", status=202)
    api.fault(404, "GET", f"/types/{kind['id']}/os-volume-type-access")


def test_other_projects_do_not_see_a_private_type(api: Api, node: Node):
    """Their users are no administrators, as with every auth_strategy but noauth."""
    kind = private(api)
    user = replace(CTX, is_admin=False, project_id=api.project)
    types, volumes = node.services.types, node.services.volumes

    def seen() -> bool:
        return kind["id"] in {each.id for each in types.list(user, None)}

    def refused() -> None:
        for ident in (kind["id"], kind["name"]):
            with pytest.raises(NotFound):
                types.resolve(user, ident)
            with pytest.raises(NotFound):
                volumes.create(user, NewVolume(1, volume_type=ident))
        with pytest.raises(NotFound):
            types.get(user, kind["id"])
        assert not seen()
        assert api("GET", "/volumes")["volumes"] == []

    refused()
    change(api, kind, "addProjectAccess", "another")
    refused()
    change(api, kind, "addProjectAccess", api.project)
    assert types.get(user, kind["id"]).id == kind["id"]
    assert seen()
    made = volumes.create(user, NewVolume(1, volume_type=kind["name"]))
    assert made.volume_type_id == kind["id"]
    change(api, kind, "removeProjectAccess", api.project)
    with pytest.raises(NotFound):
        types.get(user, kind["id"])
    assert volumes.get(user, made.id).volume_type == kind["name"]


def default(api: Api, project: str) -> dict[str, Any]:
    found: dict[str, Any] = api("GET", f"/default-types/{project}")["default_type"]
    return found


def test_a_project_has_its_own_default_type(api: Api):
    kind = api.type()
    path = f"/default-types/{api.project}"
    for ident in (kind["name"], kind["id"]):
        asked = {"default_type": {"volume_type": ident}}
        made = api("PUT", path, asked)["default_type"]
        assert made == {"project_id": api.project, "volume_type_id": kind["id"]}
    assert default(api, api.project) == made
    assert made in api("GET", "/default-types")["default_types"]
    assert api("GET", "/types/default")["volume_type"]["id"] == kind["id"]
    before = api.at("3.61")("GET", "/types/default")["volume_type"]
    assert before["name"] == "standard"
    assert api.volume()["volume_type"] == kind["name"]
    assert Api(api.client.app).volume()["volume_type"] == "standard"
    assert "default type of a project" in api.fault(
        400, "DELETE", f"/types/{kind['id']}"
    )
    for _ in range(2):
        assert api("DELETE", path, status=204) is None
    assert api.project in api.fault(404, "GET", path)
    assert api.volume()["volume_type"] == "standard"


def test_a_default_type_is_one_that_the_project_may_use(api: Api):
    path, kind = f"/default-types/{api.project}", private(api)
    body = {"default_type": {"volume_type": kind["id"]}}
    assert kind["id"] in api.fault(400, "PUT", path, body)
    change(api, kind, "addProjectAccess", api.project)
    api("PUT", path, body)
    api("DELETE", path, status=204)
    body = {"default_type": {"volume_type": "no-such-type"}}
    assert "no-such-type" in api.fault(400, "PUT", path, body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"default_type": {}},
        {"default_type": {"volume_type": ""}},
        {"default_type": {"volume_type": None}},
        {"default_type": {"volume_type": "a", "colour": "red"}},
    ],
    ids=str,
)
def test_a_wrong_default_type_is_400(api: Api, body: dict[str, Any]):
    assert "default_type" in api.fault(
        400, "PUT", f"/default-types/{api.project}", body
    )


def test_default_types_exist_from_3_62_on(api: Api):
    before, path = api.at("3.61"), f"/default-types/{api.project}"
    before.fault(404, "GET", "/default-types")
    before.fault(404, "GET", path)
    before.fault(404, "DELETE", path)
    before.fault(404, "PUT", path, {"default_type": {"volume_type": "standard"}})
