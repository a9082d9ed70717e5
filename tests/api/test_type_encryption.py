# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The encryption of volume types: stored and shown; its volumes are refused."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.drivers.fake.fake_storage import FakeDisk, storage
from lunshare.drivers.values import GIB
from tests.api.calls import Api
from tests.stands.node import CTX, Node

NOWHERE = "11111111-2222-3333-4444-555555555555"
LUKS = {
    "provider": "luks",
    "control_location": "front-end",
    "cipher": "aes-xts-plain64",
    "key_size": 256,
}


def encrypted(api: Api, **fields: Any) -> tuple[dict[str, Any], str]:
    """A new type with an encryption, and the path of that."""
    kind = api.type()
    path = f"/types/{kind['id']}/encryption"
    made = api("POST", path, {"encryption": LUKS | fields})["encryption"]
    assert made["volume_type_id"] == kind["id"]
    return kind, path


def test_an_encryption_is_created_shown_changed_and_deleted(api: Api):
    kind = api.type()
    path = f"/types/{kind['id']}/encryption"
    assert api("GET", path) == {}
    made = api("POST", path, {"encryption": LUKS})["encryption"]
    ids = {"volume_type_id": kind["id"], "encryption_id": made["encryption_id"]}
    assert made == LUKS | ids
    shown = api("GET", path)
    assert shown.pop("created_at")
    nothing = {"updated_at": None, "deleted_at": None, "deleted": False}
    assert shown == LUKS | ids | nothing
    assert api("GET", f"{path}/cipher") == {"cipher": LUKS["cipher"]}
    assert api("GET", f"{path}/key_size") == {"key_size": 256}
    api.fault(404, "GET", f"{path}/colour")
    changed = {"key_size": "128", "control_location": "back-end", "cipher": None}
    answer = api("PUT", f"{path}/{made['encryption_id']}", {"encryption": changed})
    assert answer == {"encryption": changed | {"key_size": 128}}
    found = api("GET", path)
    assert found["updated_at"] is not None
    for key, value in (changed | {"key_size": 128, "provider": "luks"}).items():
        assert found[key] == value
    # Clients of Cinder send the word provider instead of the id.
    api("DELETE", f"{path}/provider", status=202)
    assert api("GET", path) == {}
    api.fault(404, "DELETE", f"{path}/provider")
    api.fault(404, "PUT", f"{path}/provider", {"encryption": {"key_size": 1}})
    api.fault(404, "GET", f"{path}/cipher")


def test_an_invalid_field_of_an_encryption_is_named(api: Api):
    body: Any
    kind = api.type()
    path = f"/types/{kind['id']}/encryption"
    for fields, named in (
        ({"provider": None}, "provider"),
        ({"provider": "x" * 256}, "provider"),
        ({"control_location": "middle"}, "control_location"),
        ({"cipher": 1}, "cipher"),
        ({"key_size": -1}, "key_size"),
        ({"key_size": "many"}, "key_size"),
        ({"key_size": 1.5}, "key_size"),
        ({"key_size": 2**31}, "key_size"),
    ):
        body = {"encryption": LUKS | fields}
        assert named in api.fault(400, "POST", path, body)
    for body in ({}, {"encryption": {}}, {"encryption": None}, {**LUKS}):
        api.fault(400, "POST", path, body)
    assert api("GET", path) == {}
    for method, below, body in (
        ("GET", "", None),
        ("GET", "/cipher", None),
        ("POST", "", {"encryption": LUKS}),
        ("PUT", "/x", {"encryption": {"key_size": 1}}),
        ("DELETE", "/x", None),
    ):
        wrong = f"/types/{NOWHERE}/encryption{below}"
        assert NOWHERE in api.fault(404, method, wrong, body)
    small = {key: LUKS[key] for key in ("provider", "control_location")}
    made = api("POST", path, {"encryption": small | {"colour": "red"}})["encryption"]
    assert "colour" not in made
    assert (api("GET", path)["cipher"], api("GET", path)["key_size"]) == (None, None)
    assert "already" in api.fault(400, "POST", path, {"encryption": LUKS})


def test_a_type_that_volumes_use_is_not_encrypted(api: Api):
    kind = api.type()
    volume = api.volume(volume_type=kind["id"])["id"]
    path = f"/types/{kind['id']}/encryption"
    assert "in use" in api.fault(400, "POST", path, {"encryption": LUKS})
    api("DELETE", f"/volumes/{volume}", status=202)
    api.gone(f"/volumes/{volume}")
    api("POST", path, {"encryption": LUKS})


def test_a_deleted_type_has_no_encryption_left(api: Api, node: Node):
    kind, path = encrypted(api)
    api("DELETE", f"/types/{kind['id']}", status=202)
    api.fault(404, "GET", path)
    with node.assembly.database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT volume_type_id FROM type_encryption")
        assert kind["id"] not in rows.scalars().all()


def refusals(api: Api, node: Node, kind: dict[str, Any]) -> list[str]:
    """The sentence of each request that would make a volume of the type."""
    source = api.volume()["id"]
    snapshot = api.snapshot(source)["id"]
    name = node.assembly.backends["api"].name
    storage(name).foreign_disks["theirs"] = FakeDisk(GIB)
    managed = {
        "host": node.services.node.host_of("api"),
        "ref": {"source-name": "theirs"},
        "volume_type": kind["id"],
    }
    found = [
        api.fault(400, "POST", "/volumes", {"volume": asked})
        for asked in (
            {"size": 1, "volume_type": kind["id"]},
            {"size": 1, "volume_type": kind["name"]},
            {"source_volid": source, "volume_type": kind["id"]},
            {"snapshot_id": snapshot, "volume_type": kind["id"]},
        )
    ]
    found.append(api.fault(400, "POST", "/manageable_volumes", {"volume": managed}))
    for policy in ("never", "on-demand"):
        asked = {"new_type": kind["id"], "migration_policy": policy}
        found.append(api.refused(400, source, {"os-retype": asked}))
    assert "theirs" in storage(name).foreign_disks
    del storage(name).foreign_disks["theirs"]
    assert api.shown(source)["volume_type"] != kind["name"]
    return found


def test_no_volume_gets_an_encrypted_type(api: Api, node: Node):
    kind, path = encrypted(api)
    for sentence in refusals(api, node, kind):
        assert kind["name"] in sentence
        assert "key manager" in sentence
    assert len(api("GET", "/volumes")["volumes"]) == 1
    assert api("GET", "/messages")["messages"] == []
    assert api("GET", "/limits")["limits"]["absolute"]["totalVolumesUsed"] == 1
    api("DELETE", f"{path}/x", status=202)
    assert api.volume(volume_type=kind["id"])["status"] == "available"


def test_an_encryption_between_the_choice_and_the_row_is_seen(api: Api, node: Node):
    """The transaction that inserts the volume reads the type again."""
    kind = api.type()
    choose = node.services.scheduler.choose

    def encrypt_then_choose(request: Any) -> Any:
        node.services.type_encryption.create(
            CTX,
            kind["id"],
            provider="luks",
            control_location="front-end",
            cipher=None,
            key_size=None,
        )
        return choose(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.services.scheduler, "choose", encrypt_then_choose)
        asked = {"volume": {"size": 1, "volume_type": kind["id"]}}
        api.fault(409, "POST", "/volumes", asked)
    assert api("GET", "/volumes")["volumes"] == []
