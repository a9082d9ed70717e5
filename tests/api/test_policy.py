# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What roles may do, what belongs to other projects, and the policy file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.identity_daemon import Answer, Running, daemon, users
from tests.stands.daemon import refused
from tests.stands.node import connector
from tests.stands.servers import ROOT
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon

OPTIONS = "auth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"
ROLES = {
    "root": "admin:one",
    "anna": "member:one",
    "rita": "reader:one",
    "ben": "member:two",
    "nova": "service,member:one",
    "nobody": ":one",
}
CONFIG = """[DEFAULT]
enabled_backends = a
listen = unix:{}/s
[a]
volume_driver = fake
target_driver = fake
"""
GONE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("policy")
    with daemon(path, OPTIONS.format(users(path, **ROLES))) as started:
        yield started


@pytest.fixture(scope="module")
def made(running: Running) -> dict[str, str]:
    """A volume of project one with a snapshot and an attached host, by name."""

    def post(path: str, key: str, **fields: Any) -> Any:
        answer = running.basic("anna", "POST", f"/v3{path}", body={key: fields})
        assert answer.status in (200, 202), answer.body
        return answer.body[key]

    volume = post("/volumes", "volume", size=1)["id"]
    snapshot = post("/snapshots", "snapshot", volume_id=volume)["id"]
    host = {"volume_uuid": volume, "connector": connector("a")}
    attachment = post("/attachments", "attachment", **host)
    assert "auth_password" in attachment["connection_info"]
    return {"volume": volume, "snapshot": snapshot, "attachment": attachment["id"]}


WRITES: list[Any] = [
    ("POST", "/volumes", {"volume": {"size": 1}}),
    ("PUT", "/volumes/{volume}", {"volume": {"name": "n"}}),
    ("DELETE", "/volumes/{volume}", None),
    ("POST", "/volumes/{volume}/action", {"os-extend": {"new_size": 2}}),
    ("POST", "/volumes/{volume}/action", {"revert": {"snapshot_id": "{snapshot}"}}),
    ("POST", "/snapshots", {"snapshot": {"volume_id": "{volume}"}}),
    ("PUT", "/snapshots/{snapshot}", {"snapshot": {"name": "n"}}),
    ("DELETE", "/snapshots/{snapshot}", None),
    ("POST", "/attachments", {"attachment": {"volume_uuid": "{volume}"}}),
    ("PUT", "/attachments/{attachment}", {"attachment": {"connector": connector("a")}}),
    ("POST", "/attachments/{attachment}/action", {"os-complete": None}),
    ("DELETE", "/attachments/{attachment}", None),
    ("POST", "/volumes/{volume}/metadata", {"metadata": {}}),
    ("PUT", "/volumes/{volume}/metadata", {"metadata": {}}),
    ("POST", "/snapshots/{snapshot}/metadata", {"metadata": {}}),
    ("POST", "/volume-transfers", {"transfer": {"volume_id": "{volume}"}}),
    *(
        ("POST", "/volumes/{volume}/action", {name: value})
        for name, value in (
            ("os-reserve", None),
            ("os-attach", {"mountpoint": "/dev/vdb", "host_name": "h"}),
            ("os-detach", {"attachment_id": "{attachment}"}),
            ("os-initialize_connection", {"connector": connector("b")}),
            ("os-terminate_connection", {"connector": connector("b")}),
            ("os-set_bootable", {"bootable": True}),
            ("os-update_readonly_flag", {"readonly": True}),
            ("os-set_image_metadata", {"metadata": {"a": "b"}}),
        )
    ),
]
READS: list[Any] = [
    ("GET", "/volumes", None),
    ("GET", "/volumes/detail", None),
    ("GET", "/volumes/{volume}", None),
    ("GET", "/snapshots/detail", None),
    ("GET", "/snapshots/{snapshot}", None),
    ("GET", "/attachments/detail", None),
    ("GET", "/attachments/{attachment}", None),
    ("GET", "/types", None),
    ("GET", "/messages", None),
    ("GET", "/volumes/summary", None),
    ("GET", "/volumes/{volume}/metadata", None),
    ("GET", "/snapshots/{snapshot}/metadata", None),
    ("GET", "/volume-transfers/detail", None),
    ("GET", "/os-quota-sets/one", None),
    ("POST", "/volumes/{volume}/action", {"os-show_image_metadata": None}),
]
OPERATORS: list[Any] = [
    ("GET", "/os-services", None),
    ("PUT", "/os-services/disable", {"host": "h", "binary": "cinder-volume"}),
    ("GET", "/scheduler-stats/get_pools", None),
    ("GET", "/capabilities/h@fake", None),
    ("GET", "/manageable_volumes?host=h@fake", None),
    ("POST", "/types", {"volume_type": {"name": "t"}}),
    ("GET", "/lunshare/hosts", None),
    ("GET", "/lunshare/orphans", None),
    ("GET", "/lunshare/wipes", None),
    ("GET", "/lunshare/health", None),
    ("DELETE", "/volumes/{volume}?force=true", None),
    ("POST", "/volumes/{volume}/action", {"os-reset_status": {"status": "error"}}),
    ("POST", "/volumes/{volume}/action", {"os-migrate_volume": {"host": "h"}}),
    ("POST", "/volumes/{volume}/action", {"os-unmanage": {}}),
    ("POST", "/volumes/{volume}/action", {"os-force_detach": {}}),
    ("POST", "/volumes/{volume}/action", {"os-force_delete": None}),
    ("POST", "/snapshots/{snapshot}/action", {"os-reset_status": {"status": "error"}}),
    ("GET", "/default-types", None),
    ("GET", "/qos-specs", None),
    ("POST", "/qos-specs", {"qos_specs": {"name": "q"}}),
    ("PUT", "/os-quota-sets/one", {"quota_set": {"volumes": 1}}),
    ("GET", "/os-quota-sets/two", None),
    ("PUT", "/os-services/freeze", {"host": "h"}),
    ("PUT", "/os-services/set-log", {"level": "debug"}),
    ("GET", "/os-hosts", None),
    ("GET", "/clusters", None),
    ("POST", "/workers/cleanup", {}),
]
CATALOG: list[Any] = [
    ("GET", "/limits", None),
    ("GET", "/extensions", None),
    ("GET", "/os-availability-zone", None),
    ("GET", "/resource_filters", None),
]
#: Names something of the project in its URL or its body.
NAMING = [
    each
    for each in WRITES + READS
    if any(f"{{{name}}}" in str(each) for name in ("volume", "snapshot", "attachment"))
]


def ask(running: Running, user: str, made: dict[str, str], request: Any) -> Answer:
    method, path, body = request
    return running.basic(
        user, method, f"/v3{_filled(path, made)}", body=_in(body, made)
    )


def _filled(text: str, made: dict[str, str]) -> str:
    for name, ident in made.items():
        text = text.replace(f"{{{name}}}", ident)
    return text


def _in(body: Any, made: dict[str, str]) -> Any:
    if isinstance(body, dict):
        return {key: _in(value, made) for key, value in body.items()}
    return _filled(body, made) if isinstance(body, str) else body


def test_a_reader_reads_and_changes_nothing(running: Running, made: dict[str, str]):
    for request in READS:
        assert ask(running, "rita", made, request).status == 200, request
    for request in WRITES + OPERATORS:
        answer = ask(running, "rita", made, request)
        assert answer.fault[:2] == (403, "forbidden"), request
        assert "Policy doesn't allow" in answer.fault[2]


def test_a_user_without_a_role_may_do_nothing(running: Running, made: dict[str, str]):
    for request in READS + WRITES + OPERATORS:
        assert ask(running, "nobody", made, request).status == 403, request
    for request in CATALOG:
        assert ask(running, "nobody", made, request).status == 200, request


def test_what_a_project_uses_is_shown_to_its_readers(running: Running):
    shown = {
        user: running.basic(user, "GET", "/v3/limits").body["limits"]["absolute"]
        for user in ("rita", "nobody")
    }
    assert shown["rita"]["totalVolumesUsed"] > 0
    assert "totalVolumesUsed" not in shown["nobody"]
    assert shown["nobody"]["maxTotalVolumes"] == shown["rita"]["maxTotalVolumes"]


def test_a_member_does_not_operate_the_node(running: Running, made: dict[str, str]):
    for request in OPERATORS:
        assert ask(running, "anna", made, request).status == 403, request
    for request in READS:
        assert ask(running, "anna", made, request).status == 200, request


def test_what_belongs_to_another_project_is_404(running: Running, made: dict[str, str]):
    assert len(NAMING) > 12
    for request in NAMING:
        answer = ask(running, "ben", made, request)
        assert answer.fault[:2] == (404, "itemNotFound"), (request, answer.body)
    for path in ("/volumes/detail", "/snapshots/detail", "/attachments/detail"):
        answer = running.basic("ben", "GET", f"/v3{path}?all_tenants=1&project_id=one")
        assert list(answer.body.values()) == [[]]
    for source in ("snapshot_id", "source_volid"):
        ident = made["snapshot" if source == "snapshot_id" else "volume"]
        body = {"volume": {"size": 1, source: ident}}
        answer = running.basic("ben", "POST", "/v3/volumes", body=body)
        assert answer.status == 404, source
    assert ask(running, "anna", made, READS[2]).status == 200  # nothing was changed


def test_a_foreign_volume_is_404_like_an_unknown_one(
    running: Running, made: dict[str, str]
):
    foreign = running.basic("ben", "GET", f"/v3/volumes/{made['volume']}").fault[2]
    none = running.basic("ben", "GET", f"/v3/volumes/{GONE}").fault[2]
    assert foreign.replace(made["volume"], GONE) == none


def test_secrets_are_shown_only_to_users_who_may_attach(
    running: Running, made: dict[str, str]
):
    path = f"/v3/attachments/{made['attachment']}"
    for user, sees in {"anna": True, "nova": True, "root": True, "rita": False}.items():
        info = running.basic(user, "GET", path).body["attachment"]["connection_info"]
        assert ("auth_password" in info) is sees, user
        assert info["target_iqn"]
        detail = running.basic(user, "GET", "/v3/attachments/detail").body
        assert "auth_password" not in str(detail)


def test_fields_about_the_storage_are_for_administrators(
    running: Running, made: dict[str, str]
):
    path = f"/v3/attachments/{made['attachment']}/action"
    body = {"os-complete": None}
    assert running.basic("anna", "POST", path, body=body).status == 204
    for user, sees in {"root": True, "anna": False, "nova": False}.items():
        shown = running.basic(user, "GET", f"/v3/volumes/{made['volume']}").body
        for key in ("os-vol-host-attr:host", "migration_status", "provider_id"):
            assert (key in shown["volume"]) is sees, (user, key)
        (attached,) = shown["volume"]["attachments"]
        assert attached["host_name"] == (None if user == "anna" else "a")
    kind = {"name": "fast", "extra_specs": {"secret": "x", "multiattach": "<is> True"}}
    made_type = running.basic("root", "POST", "/v3/types", body={"volume_type": kind})
    path = f"/v3/types/{made_type.body['volume_type']['id']}"
    for user, specs in {"root": kind["extra_specs"], "anna": {"multiattach"}}.items():
        shown = running.basic(user, "GET", path).body["volume_type"]["extra_specs"]
        assert set(shown) == set(specs)
        listed = running.basic(user, "GET", f"{path}/extra_specs").body["extra_specs"]
        assert set(listed) == set(specs)


def test_an_administrator_sees_every_project(running: Running, made: dict[str, str]):
    answer = running.basic("root", "GET", f"/v3/two/volumes/{made['volume']}")
    assert answer.status == 200
    found = running.basic("root", "GET", "/v3/two/volumes?all_tenants=1").body
    assert made["volume"] in [each["id"] for each in found["volumes"]]


def test_a_policy_file_replaces_rules_while_the_daemon_runs(running: Running):
    file = running.path / "policy.yaml"
    file.write_text(
        '"volume:get_all": "!"\n"volume:multiattach": "!"\n"operator": "role:service"\n'
        '"volume_extension:services:index": "rule:operator"\n'
    )
    try:
        until(lambda: running.basic("anna", "GET", "/v3/volumes").status == 403)
        assert running.basic("root", "GET", "/v3/volumes").status == 403
        assert running.basic("nova", "GET", "/v3/os-services").status == 200
        assert running.unix("GET", "/v3/os-services").status == 403
        shared = {"name": "s", "extra_specs": {"multiattach": "<is> True"}}
        running.unix("POST", "/v3/types", body={"volume_type": shared})
        body = {"volume": {"size": 1, "volume_type": "s"}}
        answer = running.basic("anna", "POST", "/v3/volumes", body=body)
        assert "volume:multiattach" in answer.fault[2]
        file.write_text('"volume:get_all": "!"\n"volume:gte": "@"\n')
        until(
            lambda: (
                running.unix("GET", "/v3/types").status == 200
                and "the former rules stay" in running.output()
            )
        )
        assert running.basic("anna", "GET", "/v3/volumes").status == 403
    finally:
        file.unlink()
    until(lambda: running.basic("anna", "GET", "/v3/volumes").status == 200)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '"volume:get": "@"\n# c\n"volume:gte": "@"\n',
            "line 3: there is no rule 'volume:gte'",
        ),
        ('"volume:get": "rule:none"\n', "line 1: 'volume:get' names rule 'none'"),
        ('"volume:get": "role:a or"\n', "line 1: 'role:a or' is not a check"),
        ('"volume:get": "a\n', "cannot be read: give UTF-8 and YAML"),
        ("- a\n", "is not a mapping"),
        (
            '"volume:get": "!"\n# c\nvolume:get_all: "@"\n\'volume:get\': "@"\n',
            "line 4: rule 'volume:get' is in line 1 already: remove one of them",
        ),
        (
            '"volume:get_all": "@"\n"volume:get": 7\n',
            "line 2: the check of 'volume:get' must be a text",
        ),
        ('"volume:get": 7\n', "line 1: the check of 'volume:get' must be a text"),
        (
            '"volume:get": "role:a or not (@ and role:%)"',
            "the check of 'volume:get' cannot be evaluated (incomplete format): write",
        ),
        (
            'context_is_admin: ":"',
            "the check of 'context_is_admin' cannot be evaluated (invalid syntax",
        ),
        (
            '"volume:get": "@"\ncontext_is_admin:\n',
            "line 2: the check of 'context_is_admin' is empty: write \"@\" to allow",
        ),
    ],
)
def test_a_wrong_policy_file_is_a_start_error_that_names_the_line(
    text: str, sentence: str, tmp_path: Path
):
    (tmp_path / "policy.yaml").write_text(text)
    config = tmp_path / "lunshare.conf"
    config.write_text(CONFIG.format(tmp_path))
    said = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert f"policy file {tmp_path}/policy.yaml" in said
    assert sentence in said


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda file: file.chmod(0o664), "has mode 0664, so others can write it"),
        (lambda file: file.chmod(0o646), "has mode 0646, so others can write it"),
        (_fifo, "is not a file"),
    ],
)
def test_a_policy_file_that_others_can_write_is_a_start_error(
    spoil: Callable[[Path], None], sentence: str, tmp_path: Path
):
    file = tmp_path / "policy.yaml"
    file.write_text('"volume:get": "role:reader"\n')
    spoil(file)
    config = tmp_path / "lunshare.conf"
    config.write_text(CONFIG.format(tmp_path))
    said = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert f"policy file {file} {sentence}" in said


def test_the_tools_of_oslo_policy_know_the_rules(tmp_path: Path):
    """The generator reads them through the entry point of the installed package."""
    made = tmp_path / "sample.yaml"
    words = ["--namespace", "lunshare", "--output-file", str(made)]
    code = "from oslo_policy.generator import generate_sample as run; run()"
    subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, check=True)
    text = made.read_text()
    assert '#"volume:attachment_create": ' in text
    assert "# POST  /volumes/{id}/action (os-extend)" in text
