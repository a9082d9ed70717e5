# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The writers policy over the API: what clients set, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.calls import Api
from tests.stands.node import connector

WRITERS, MAX_WRITERS = "lunshare:writers", "lunshare:max_writers"


def attachment(volume: dict[str, Any], host: str, **more: object) -> dict[str, Any]:
    fields = {"volume_uuid": volume["id"], "connector": connector(host), **more}
    return {"attachment": fields}


def shared(api: Api, **metadata: str) -> dict[str, Any]:
    specs = {"multiattach": "<is> True"}
    body = {"volume_type": {"name": "shared", "extra_specs": specs}}
    kind = api("POST", "/types", body)["volume_type"]
    return api.volume(volume_type=kind["id"], metadata=metadata)


def test_answers_of_a_reader_say_ro(api: Api):
    volume = shared(api, **{WRITERS: "alpha"})
    made = api("POST", "/attachments", attachment(volume, "beta"))["attachment"]
    assert made["attach_mode"] == "ro"
    assert made["connection_info"]["access_mode"] == "ro"
    alpha = api("POST", "/attachments", attachment(volume, "alpha"))["attachment"]
    assert alpha["connection_info"]["access_mode"] == "rw"
    body = attachment(volume, "gamma", mode="rw")
    sentence = api.fault(409, "POST", "/attachments", body)
    assert sentence.startswith(
        f"attachment mode rw: {WRITERS} of volume {volume['id']}"
    )
    path = f"/volumes/{volume['id']}/metadata"
    changed = {"metadata": {WRITERS: "beta"}}
    for method in ("POST", "PUT"):
        assert alpha["id"] in api.fault(409, method, path, changed)
    item = {"meta": {MAX_WRITERS: "0"}}
    assert alpha["id"] in api.fault(409, "PUT", f"{path}/{MAX_WRITERS}", item)
    body = {"volume": {"metadata": {WRITERS: ""}}}
    assert alpha["id"] in api.fault(409, "PUT", f"/volumes/{volume['id']}", body)
    api("DELETE", f"{path}/{WRITERS}")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (WRITERS, "a;b"),
        (MAX_WRITERS, "-1"),
        (MAX_WRITERS, "x"),
        (WRITERS, "n," * 10_000),
        ("lunshare:writer", "alpha"),
        ("Lunshare:max_writers", "1"),
    ],
)
def test_a_policy_without_meaning_is_400_and_names_its_key(
    api: Api, key: str, text: str
):
    volume = api.volume()
    bad = {"metadata": {key: text}}
    assert key in api.fault(400, "POST", f"/volumes/{volume['id']}/metadata", bad)
    assert key in api.fault(400, "POST", "/volumes", {"volume": {"size": 1, **bad}})
    specs = {"name": "bad", "extra_specs": {key: text}}
    assert key in api.fault(400, "POST", "/types", {"volume_type": specs})
