# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume is not taken from a server of Nova that uses it (CVE-2023-2088)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.model.errors import Busy
from lunshare.agent.model.records import Attachment, RequestContext
from lunshare.agent.model.states import AttachStatus
from lunshare.agent.service.instance_gate import InstanceGate
from tests.api.identity_daemon import Answer, Running, daemon, users
from tests.api.keystone_stand_in import Keystone
from tests.api.nova_stand_in import Nova
from tests.stands.daemon import refused
from tests.stands.node import connector

pytestmark = pytest.mark.daemon

BASIC = (
    "quota_volumes = -1\nauth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"
)
ROLES = {"root": "admin:one", "anna": "member:one", "nova": "service,member:one"}


@dataclass
class Scene:
    """A daemon, its Nova, and one shared volume type."""

    running: Running
    nova: Nova

    def send(self, method: str, path: str, user: str = "anna", body: Any = None) -> Any:
        return self.running.basic(user, method, f"/v3{path}", body=body)

    def volume(self) -> str:
        answer = self.send("POST", "/volumes", body={"volume": {"size": 1}})
        return str(answer.body["volume"]["id"])

    def act(self, volume: str, action: dict[str, Any], user: str = "anna") -> Answer:
        found: Answer = self.send("POST", f"/volumes/{volume}/action", user, action)
        return found

    def used(self) -> Used:
        """A volume that a server of Nova has."""
        volume, server = self.volume(), str(uuid.uuid4())
        asked: dict[str, Any] = {"volume_uuid": volume, "instance_uuid": server}
        asked["connector"] = connector("a")
        answer = self.send("POST", "/attachments", body={"attachment": asked})
        assert answer.status == 200, answer.body
        attachment = str(answer.body["attachment"]["id"])
        path = f"/attachments/{attachment}/action"
        assert self.send("POST", path, body={"os-complete": None}).status == 204
        self.nova.has[server, volume] = attachment
        return Used(volume, server, attachment)

    def status(self, attachment: str) -> str:
        shown = self.send("GET", f"/attachments/{attachment}").body
        return str(shown["attachment"]["status"])


@dataclass
class Used:
    volume: str
    server: str
    attachment: str


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    path, nova = tmp_path_factory.mktemp("gate"), Nova()
    with daemon(path, BASIC.format(users(path, **ROLES)) + nova.options) as running:
        yield Scene(running, nova)
    nova.stop()


@pytest.fixture
def scene(gated: Scene) -> Scene:
    gated.nova.asked.clear()
    return gated


def test_an_attachment_that_a_server_uses_is_not_deleted(scene: Scene):
    used = scene.used()
    for user in ("anna", "root"):
        answer = scene.send("DELETE", f"/attachments/{used.attachment}", user)
        assert answer.fault[:2] == (409, "conflictingRequest")
        assert f"server {used.server} of Nova uses it" in answer.fault[2]
    assert scene.nova.asked == [(used.server, used.volume)] * 2
    assert scene.status(used.attachment) == "attached"


def test_root_at_the_socket_is_asked_as_well(scene: Scene):
    used = scene.used()
    answer = scene.running.unix("DELETE", f"/v3/one/attachments/{used.attachment}")
    assert answer.status == 409


def test_a_service_token_may_delete_it(scene: Scene):
    used = scene.used()
    answer = scene.send("DELETE", f"/attachments/{used.attachment}", "nova")
    assert answer.status == 200
    assert scene.nova.asked == []


def test_an_attachment_that_the_server_no_longer_has_is_deleted(scene: Scene):
    used = scene.used()
    del scene.nova.has[used.server, used.volume]
    answer = scene.send("DELETE", f"/attachments/{used.attachment}")
    assert answer.status == 200
    assert scene.nova.asked == [(used.server, used.volume)]


def test_an_attachment_that_the_server_does_not_use_is_deleted(scene: Scene):
    """As after a live migration: the server has the volume by another attachment."""
    used = scene.used()
    scene.nova.has[used.server, used.volume] = str(uuid.uuid4())
    assert scene.send("DELETE", f"/attachments/{used.attachment}").status == 200


def test_a_server_with_an_unnamed_attachment_keeps_its_volume(scene: Scene):
    used = scene.used()
    scene.nova.has[used.server, used.volume] = None
    assert scene.send("DELETE", f"/attachments/{used.attachment}").status == 409


def test_without_a_server_or_a_connection_nova_is_not_asked(scene: Scene):
    volume = scene.volume()
    for more in ({"connector": connector("a")}, {"instance_uuid": str(uuid.uuid4())}):
        body = {"attachment": {"volume_uuid": volume, **more}}
        made = scene.send("POST", "/attachments", body=body).body["attachment"]["id"]
        assert scene.send("DELETE", f"/attachments/{made}").status == 200
    assert scene.nova.asked == []


def test_while_nova_fails_nothing_is_detached(scene: Scene):
    used = scene.used()
    for change in ("status", "hangs"):
        before = getattr(scene.nova, change)
        setattr(scene.nova, change, 503 if change == "status" else True)
        answer = scene.send("DELETE", f"/attachments/{used.attachment}")
        setattr(scene.nova, change, before)
        assert answer.fault[:2] == (500, "computeFault"), change
        assert "Nova cannot be asked" in answer.fault[2]
        assert scene.status(used.attachment) == "attached"
    scene.nova.continues.set()
    del scene.nova.has[used.server, used.volume]
    assert scene.send("DELETE", f"/attachments/{used.attachment}").status == 200


@pytest.mark.parametrize(
    ("action", "value", "user"),
    [
        ("os-detach", {}, "anna"),
        ("os-detach", {"attachment_id": "{attachment}"}, "anna"),
        ("os-force_detach", {}, "root"),
        ("os-force_detach", {"attachment_id": "{attachment}"}, "root"),
    ],
)
def test_actions_do_not_detach_it_either(
    scene: Scene, action: str, value: dict[str, str], user: str
):
    used = scene.used()
    body = {action: dict.fromkeys(value, used.attachment)}
    answer = scene.act(used.volume, body, user)
    assert answer.fault[:2] == (409, "conflictingRequest")
    assert scene.status(used.attachment) == "attached"
    del scene.nova.has[used.server, used.volume]
    assert scene.act(used.volume, body, user).status == 202
    assert scene.send("GET", f"/attachments/{used.attachment}").status == 404


def test_terminate_connection_does_not_close_it_either(scene: Scene):
    volume, server, host = scene.volume(), str(uuid.uuid4()), connector("a")
    attach = {"instance_uuid": server, "mountpoint": "/dev/vdb"}
    assert scene.act(volume, {"os-reserve": None}).status == 202
    opened = scene.act(volume, {"os-initialize_connection": {"connector": host}})
    assert opened.status == 200
    assert scene.act(volume, {"os-attach": attach}).status == 202
    scene.nova.has[server, volume] = None
    end = {"os-terminate_connection": {"connector": host}}
    assert scene.act(volume, end).fault[:2] == (409, "conflictingRequest")
    (row,) = scene.send("GET", f"/attachments/detail?volume_id={volume}").body[
        "attachments"
    ]
    assert row["connection_info"]["target_iqn"]
    assert scene.act(volume, end, "nova").status == 202
    assert scene.act(volume, {"os-detach": {}}).status == 202


def test_another_connector_does_not_take_it_from_the_server(scene: Scene):
    """It would end the access of the compute host, as a delete would."""
    used = scene.used()
    path = f"/attachments/{used.attachment}"
    other = {"attachment": {"connector": connector("b")}}
    answer = scene.send("PUT", path, body=other)
    assert answer.fault[:2] == (409, "conflictingRequest")
    assert f"server {used.server} of Nova uses it" in answer.fault[2]
    assert scene.nova.asked == [(used.server, used.volume)]
    assert scene.status(used.attachment) == "attached"
    same = {"attachment": {"connector": connector("a")}}
    assert scene.send("PUT", path, body=same).status == 200
    assert scene.nova.asked == [(used.server, used.volume)]
    assert scene.send("PUT", path, "nova", other).status == 200


def test_a_404_that_is_not_of_nova_does_not_detach(scene: Scene):
    """As of a proxy, or of a wrong endpoint: nobody knows what the server has."""
    used = scene.used()
    scene.nova.status = 404
    answer = scene.send("DELETE", f"/attachments/{used.attachment}")
    scene.nova.status = 200
    assert answer.fault[:2] == (500, "computeFault")
    assert "Nova cannot be asked" in answer.fault[2]
    assert scene.status(used.attachment) == "attached"


def test_an_administrator_can_reset_what_nova_has_lost(scene: Scene):
    used = scene.used()
    reset = {"os-reset_status": {"status": "available", "attach_status": "detached"}}
    assert scene.act(used.volume, reset, "root").status == 202
    assert scene.send("GET", f"/attachments/{used.attachment}").status == 404


def test_a_service_token_of_keystone_may_detach(tmp_path: Path):
    keystone, nova = Keystone(), Nova()
    keystone.issue("member", "member", "reader")
    keystone.issue("service", "service")
    keystone.issue("unrelated", "member")
    options = "auth_strategy = keystone\n" + keystone.options + nova.options
    with daemon(tmp_path, options) as running:

        def send(method: str, path: str, service: str = "", body: Any = None) -> Answer:
            headers = {"X-Auth-Token": "member"}
            headers |= {"X-Service-Token": service} if service else {}
            return running.http(method, f"/v3{path}", headers=headers, body=body)

        volume = send("POST", "/volumes", body={"volume": {"size": 1}})
        asked = {"volume_uuid": volume.body["volume"]["id"]}
        server = str(uuid.uuid4())
        asked |= {"instance_uuid": server, "connector": connector("a")}
        made = send("POST", "/attachments", body={"attachment": asked})
        attachment = made.body["attachment"]["id"]
        nova.has[server, asked["volume_uuid"]] = attachment
        path = f"/attachments/{attachment}"
        assert send("DELETE", path).status == 409
        assert send("DELETE", path, "unrelated").status in (401, 409)
        assert send("DELETE", path, "service").status == 200
    keystone.stop()
    nova.stop()


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("region_name = one", "[nova] auth_type is missing"),
        ("auth_type = nothing", "[nova] is not usable"),
        ("auth_type = none\nendpoint_overide = x", "[nova]: endpoint_overide: no such"),
    ],
)
def test_a_wrong_section_is_a_start_error(section: str, sentence: str, tmp_path: Path):
    config = tmp_path / "lunshare.conf"
    config.write_text(
        f"[DEFAULT]\nenabled_backends = a\nlisten = unix:{tmp_path}/s\n"
        f"[a]\nvolume_driver = fake\ntarget_driver = fake\n[nova]\n{section}\n"
    )
    said = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert sentence in said


class NoServers:
    """A Nova that has no servers."""

    def attachment_of(self, server: str, volume_id: str) -> str | None:
        return None


def test_an_attachment_that_a_server_gets_meanwhile_is_kept():
    """Judged as a reservation without a server, it is another one in the end."""
    ctx = RequestContext("u", "p", False, "r")
    row = Attachment("a", "v", AttachStatus.RESERVED)
    check = InstanceGate(NoServers(), ["service"]).check_detach(ctx, row)
    check(row)
    with pytest.raises(Busy):
        check(replace(row, instance_uuid="i", connection_info={}))
