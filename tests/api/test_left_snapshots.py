# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots that stay with their project when their volume goes to another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.api.identity_daemon import Answer, Running, daemon, users
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon

OPTIONS = "auth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"
ROLES = {"root": "admin:one", "anna": "member:one", "ben": "member:two"}
ROLES |= {"carl": "member:three"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("left")
    with daemon(path, OPTIONS.format(users(path, **ROLES))) as started:
        yield started


@dataclass
class User:
    running: Running
    name: str

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self.running.basic(self.name, method, f"/v3{path}", body=body)

    def make(self, kind: str, path: str = "", **fields: Any) -> dict[str, Any]:
        answer = self.ask("POST", path or f"/{kind}s", {kind: fields})
        assert answer.status in (200, 202), answer.body
        made: dict[str, Any] = answer.body[kind]
        return made

    def act(self, volume: str, action: str, fields: Any) -> Answer:
        return self.ask("POST", f"/volumes/{volume}/action", {action: fields})

    def give(self, volume: str, to: User, no_snapshots: bool) -> Answer:
        fields = {"volume_id": volume, "no_snapshots": no_snapshots}
        offer = self.make("transfer", "/volume-transfers", **fields)
        key = {"accept": {"auth_key": offer["auth_key"]}}
        return to.ask("POST", f"/volume-transfers/{offer['id']}/accept", key)

    def owns(self) -> list[str]:
        rows = self.ask("GET", "/snapshots").body["snapshots"]
        return [row["id"] for row in rows]


@pytest.fixture
def anna(running: Running) -> User:
    return User(running, "anna")


@pytest.fixture
def ben(running: Running) -> User:
    return User(running, "ben")


@pytest.fixture
def root(running: Running) -> User:
    return User(running, "root")


@pytest.fixture
def left(anna: User, ben: User) -> tuple[str, str]:
    """A volume that ben has now, and anna's snapshot of it."""
    volume = anna.make("volume", size=1)["id"]
    snapshot = anna.make("snapshot", volume_id=volume)["id"]
    assert anna.give(volume, ben, no_snapshots=True).status == 202
    return volume, snapshot


def test_a_volume_of_a_left_snapshot_has_nothing_of_the_new_owner(
    anna: User, ben: User, root: User, left: tuple[str, str]
) -> None:
    volume, snapshot = left
    secret = root.make("volume_type", "/types", name="secret of ben")
    image = {"metadata": {"licence": "ben's"}}
    assert ben.act(volume, "os-set_image_metadata", image).status == 200
    assert ben.act(volume, "os-set_bootable", {"bootable": True}).status == 200
    retype = {"new_type": secret["id"], "migration_policy": "never"}
    assert ben.act(volume, "os-retype", retype).status == 202
    shown = ben.ask("GET", f"/volumes/{volume}").body["volume"]
    assert shown["volume_image_metadata"] == {"licence": "ben's"}
    assert shown["volume_type"] == "secret of ben"
    made = anna.make("volume", snapshot_id=snapshot)["id"]
    got = anna.ask("GET", f"/volumes/{made}").body["volume"]
    assert "volume_image_metadata" not in got
    assert got["bootable"] == "false"
    assert got["volume_type"] is None
    assert "ben" not in str(got)


def test_a_volume_of_a_left_snapshot_has_the_type_of_that_time(
    anna: User, ben: User, root: User
) -> None:
    shared = {"multiattach": "<is> True"}
    kind = root.make("volume_type", "/types", name="then", extra_specs=shared)
    volume = anna.make("volume", size=1, volume_type=kind["id"])["id"]
    snapshot = anna.make("snapshot", volume_id=volume)["id"]
    assert anna.give(volume, ben, no_snapshots=True).status == 202
    other = root.make("volume_type", "/types", name="now")["id"]
    retype = {"new_type": other, "migration_policy": "never"}
    assert ben.act(volume, "os-retype", retype).status == 202
    made = anna.make("volume", snapshot_id=snapshot)
    assert (made["volume_type"], made["multiattach"]) == ("then", True)
    assert root.ask("DELETE", f"/volumes/{made['id']}").status == 202
    until(lambda: root.ask("GET", f"/volumes/{made['id']}").status == 404)
    assert root.ask("DELETE", f"/types/{kind['id']}").status == 202
    made = anna.make("volume", snapshot_id=snapshot)
    assert (made["volume_type"], made["multiattach"]) == (None, False)


def test_the_new_owner_cannot_delete_what_needs_the_volume(
    anna: User, ben: User, root: User, left: tuple[str, str]
) -> None:
    volume, snapshot = left
    own = ben.make("snapshot", volume_id=volume)["id"]
    for query in ("?cascade=true", ""):
        fault = ben.ask("DELETE", f"/volumes/{volume}{query}").fault
        assert fault[:2] == (400, "badRequest")
        assert "snapshots" in fault[2]
        assert "are of another project" in fault[2]
        for secret in (snapshot, "one", "anna"):
            assert secret not in fault[2]
    assert ben.ask("GET", f"/snapshots/{own}").body["snapshot"]["status"] == "available"
    assert anna.ask("GET", f"/snapshots/{snapshot}").status == 200
    assert ben.ask("GET", f"/volumes/{volume}").body["volume"]["status"] == "available"
    assert root.ask("DELETE", f"/volumes/{volume}?cascade=true").status == 202
    until(lambda: anna.ask("GET", f"/snapshots/{snapshot}").status == 404)


def test_a_later_snapshot_of_another_project_is_not_named_by_a_revert(
    anna: User, ben: User
) -> None:
    volume = anna.make("volume", size=1)["id"]
    assert anna.give(volume, ben, no_snapshots=False).status == 202
    own = ben.make("snapshot", volume_id=volume)["id"]
    later = User(ben.running, "root").make("snapshot", volume_id=volume)["id"]
    fault = ben.act(volume, "revert", {"snapshot_id": own}).fault
    assert fault[0] == 400
    assert later not in fault[2]
    assert "a later snapshot of another project" in fault[2]


def test_a_snapshot_that_stayed_does_not_go_with_the_next_transfer(
    anna: User, ben: User, running: Running, left: tuple[str, str]
) -> None:
    volume, snapshot = left
    own = ben.make("snapshot", volume_id=volume)["id"]
    carl = User(running, "carl")
    assert ben.give(volume, carl, no_snapshots=False).status == 202
    assert carl.owns() == [own]
    assert snapshot in anna.owns()


def test_snapshots_count_for_their_type_when_a_transfer_is_accepted(
    anna: User, ben: User, root: User, running: Running
) -> None:
    carl = User(running, "carl")
    before = root.make("volume_type", "/types", name="before")["id"]
    after = root.make("volume_type", "/types", name="after")["id"]
    volume = anna.make("volume", size=1, volume_type=before)["id"]
    anna.make("snapshot", volume_id=volume)
    retype = {"new_type": after, "migration_policy": "never"}
    assert anna.act(volume, "os-retype", retype).status == 202
    for key, most in (("snapshots_after", 0), ("gigabytes_after", 1)):
        limit = {"quota_set": {key: most}}
        assert root.ask("PUT", "/os-quota-sets/three", limit).status == 200
        answer = anna.give(volume, carl, no_snapshots=False)
        assert answer.fault[:2] == (413, "overLimit")
        assert key in answer.fault[2]
        (offer,) = anna.ask("GET", "/volume-transfers").body["transfers"]
        assert anna.ask("DELETE", f"/volume-transfers/{offer['id']}").status == 202
        assert root.ask("DELETE", "/os-quota-sets/three").status == 200
    assert anna.give(volume, carl, no_snapshots=False).status == 202
