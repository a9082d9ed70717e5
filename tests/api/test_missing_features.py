# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What this node does not have is refused with a sentence that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.agent.api import missing_features
from tests.api.calls import Api

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "11111111-2222-3333-4444-555555555555"
BELOW = ("", "/detail", f"/{NOWHERE}", f"/{NOWHERE}/action", "/a/b/c")


@pytest.mark.parametrize("path", missing_features.PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_path_is_404_and_named(api: Api, path: str, method: str):
    what = missing_features.PATHS[path].what
    short = path.removeprefix("/v3")
    for below in BELOW:
        assert what in api.fault(404, method, short + below, {})


def test_a_path_is_named_without_a_project_too(api: Api):
    answer = api.client.simulate_get("/v3/backups")
    assert answer.status_code == 404
    assert "Backups" in answer.json["itemNotFound"]["message"]


@pytest.mark.parametrize("name", missing_features.ACTIONS)
def test_an_action_is_400_and_named(api: Api, name: str):
    volume = api.volume()
    sentence = api.refused(400, volume["id"], {name: {"image_name": "n"}})
    assert sentence.startswith(f"{name}: ")
    assert missing_features.ACTIONS[name].what in sentence


@pytest.mark.parametrize("name", missing_features.FIELDS)
def test_a_field_is_400_and_named(api: Api, name: str):
    for version in ("3.0", "3.71"):
        body = {"volume": {"size": 1, name: NOWHERE}}
        sentence = api.at(version).fault(400, "POST", "/volumes", body)
        assert sentence.startswith(f"volume.{name}: ")
        assert missing_features.FIELDS[name].what in sentence
    # Clients send them without a value.
    assert api.volume(**{name: None})["size"] == 1


def test_the_page_lists_all_of_them():
    lines = (ROOT / "docs" / "api-reference.md").read_text()
    for name in (
        *missing_features.PATHS,
        *missing_features.ACTIONS,
        *missing_features.FIELDS,
    ):
        assert f"`{name}`" in lines
