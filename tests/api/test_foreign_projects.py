# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What belongs to another project is 404 in every route, whatever the policy allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.foreign_requests import IN_BODY, IN_PATH, Request
from tests.api.identity_daemon import Answer, Running, daemon, users
from tests.stands.node import connector

pytestmark = pytest.mark.daemon

ROLES = {"root": "admin:two", "anna": "member:one", "ben": "member:two"}
OPTIONS = """auth_strategy = http_basic
http_basic_auth_user_file = {}
quota_gigabytes = -1
create_wait = 60
"""
#: Everybody may call every route, so only the project decides.
POLICY = '"admin_api": "role:member"\n'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("foreign")
    (path / "policy.yaml").write_text(POLICY)
    with daemon(path, OPTIONS.format(users(path, **ROLES))) as started:
        yield started


@pytest.fixture(scope="module")
def made(running: Running) -> dict[str, str]:
    """Ids of resources of project one by name; ``own`` is a volume of project two."""

    def post(path: str, key: str, user: str = "anna", **fields: Any) -> str:
        answer = running.basic(user, "POST", f"/v3{path}", body={key: fields})
        assert answer.status in (200, 202), answer.body
        return str(answer.body[key]["id"])

    def attached(volume: str, host: str) -> str:
        fields: dict[str, Any] = {"volume_uuid": volume, "connector": connector(host)}
        return post("/attachments", "attachment", **fields)

    def offered() -> str:
        volume = post("/volumes", "volume", size=1)
        return post("/os-volume-transfer", "transfer", volume_id=volume)

    shared = {"multiattach": "<is> True"}
    public = post("/types", "volume_type", "root", name="p", extra_specs=shared)
    private = post(
        "/types",
        "volume_type",
        "root",
        name="private",
        extra_specs={"a": "b"},
        **{"os-volume-type-access:is_public": False},
    )
    access = {"addProjectAccess": {"project": "one"}}
    running.basic("root", "POST", f"/v3/types/{private}/action", body=access)
    luks = {"encryption": {"provider": "luks", "control_location": "front-end"}}
    running.basic("root", "POST", f"/v3/types/{private}/encryption", body=luks)
    volume = post("/volumes", "volume", size=1, volume_type=public, metadata={"a": "b"})
    other = post("/volumes", "volume", size=1, volume_type=public)
    unmet = post("/types", "volume_type", "root", name="g", extra_specs={"tier": "g"})
    nowhere = post("/volumes", "volume", size=1, volume_type=unmet)
    (message,) = running.basic("anna", "GET", "/v3/messages").body["messages"]
    assert message["resource_uuid"] == nowhere
    running.basic("anna", "DELETE", f"/v3/volumes/{nowhere}")
    return {
        "public": public,
        "type": private,
        "volume": volume,
        "snapshot": post("/snapshots", "snapshot", volume_id=volume),
        "second volume": other,
        "second snapshot": post("/snapshots", "snapshot", volume_id=other),
        "attachment": attached(volume, "a"),
        "third attachment": attached(volume, "c"),
        "fourth attachment": attached(volume, "d"),
        "second attachment": attached(other, "a"),
        "transfer": offered(),
        "second transfer": offered(),
        "message": message["id"],
        "own": post("/volumes", "volume", "ben", size=1),
        "qos": post("/qos-specs", "qos_specs", "root", name="q"),
    }


def ask(running: Running, user: str, made: dict[str, str], request: Request) -> Answer:
    method, path, body = request
    return running.basic(
        user, method, filled(f"/v3{path}", made), body=filled(body, made)
    )


def filled(part: Any, made: dict[str, str]) -> Any:
    """A path or a body with ids in place of names."""
    if isinstance(part, dict):
        return {key: filled(value, made) for key, value in part.items()}
    if isinstance(part, list):
        return [filled(value, made) for value in part]
    if not isinstance(part, str):
        return part
    for name, ident in made.items():
        part = part.replace(f"{{{name}}}", ident)
    return part


@pytest.mark.parametrize("request_", IN_PATH + IN_BODY, ids=str)
def test_another_project_is_404(
    running: Running, made: dict[str, str], request_: Request
):
    answer = ask(running, "ben", made, request_)
    assert answer.fault[:2] == (404, "itemNotFound"), answer.body


def test_nothing_was_changed(running: Running, made: dict[str, str]):
    """Runs after the requests of the other project."""
    for path in ("/volumes/{volume}", "/snapshots/{snapshot}", "/types/{type}"):
        answer = ask(running, "anna", made, ("GET", path, None))
        (shown,) = answer.body.values()
        assert shown["name"] in (None, "private")
        assert shown.get("metadata", {}) in ({}, {"a": "b"})
        assert shown.get("status") in (None, "available", "attaching")
    found = running.basic("anna", "GET", "/v3/attachments").body["attachments"]
    kept = {each["id"] for each in found}
    assert kept == {made[name] for name in made if name.endswith("attachment")}


def test_an_administrator_is_not_refused(running: Running, made: dict[str, str]):
    """root has project two, as the user who got 404 for all of it."""
    for request in IN_BODY + IN_PATH:
        answer = ask(running, "root", made, request)
        if request[1].startswith("/volumes/{own}") or "marker" in request[1]:
            continue  # a list of project two, a volume without this attachment
        assert answer.status not in (401, 403, 404), (request, answer.body)
        assert answer.status < 500, (request, answer.body)
