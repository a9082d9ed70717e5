# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""python-cinderclient and python-openstackclient, unmodified, against the daemon.

The daemon and the commands are separate processes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from cinderclient import exceptions

from tests.api import clients
from tests.api.clients import BIN
from tests.stands.node import connector, initiator

pytestmark = pytest.mark.daemon

SERVER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon in a separate process, ready."""
    with clients.daemon(tmp_path_factory.mktemp("daemon"), ["fake"]) as url:
        yield url


@pytest.fixture(scope="module")
def cinder(endpoint: str) -> Any:
    """cinderclient as a library, in the same project as openstackclient."""
    return clients.library(endpoint)


def test_the_openstack_command_lists_volumes(endpoint: str):
    words = ["--os-auth-type", "none", "--os-endpoint", endpoint]
    command = [str(BIN / "openstack"), *words, "volume", "list", "-f", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert isinstance(json.loads(listed.stdout), list)


@pytest.fixture(scope="module")
def osc(endpoint: str, cinder: Any) -> dict[str, Any]:
    """What one openstack process answered to a round of commands, by name."""
    (line,) = cinder.services.list(binary="cinder-volume")
    volume = cinder.volumes.create(1, name="osc-attached")
    made = cinder.attachments.create(volume.id, connector("osc"), SERVER, "ro")
    ident, service = made["id"], f"{line.host} cinder-volume"
    commands = {
        "type": "volume type create --multiattach --property a:b=c osc",
        "volume": "volume create --size 2 --type osc --property k=v osc-1",
        "show": "volume show osc-1",
        "list": "volume list --long",
        "show type": "volume type show osc",
        "set": "volume set --name osc-2 osc-1",
        "show renamed": "volume show osc-2",
        "delete": "volume delete osc-2",
        "unset": "volume type unset --property a:b osc",
        "list old name": "volume list --name osc-1",
        "attachment": f"volume attachment show {ident}",
        "complete": f"volume attachment complete {ident}",
        "attachments": "volume attachment list",
        "detach": f"volume attachment delete {ident}",
        "services": "volume service list",
        "pools": "volume backend pool list --long",
        "disable": f"volume service set --disable --disable-reason disks {service}",
        "disabled": "volume service list --service cinder-volume --long",
        "enable": f"volume service set --enable {service}",
    }
    silent = {"set", "delete", "unset", "complete", "detach", "disable", "enable"}
    return clients.asked(endpoint, commands, silent)


def test_openstackclient_creates_a_shared_type(osc: dict[str, Any]):
    specs = {"multiattach": "<is> True", "a:b": "c"}
    assert osc["type"]["properties"] == specs
    assert osc["show type"]["id"] == osc["type"]["id"]


def test_openstackclient_creates_renames_and_deletes_a_volume(osc: dict[str, Any]):
    made = osc["volume"]
    assert made["multiattach"] is True
    assert made["properties"] == {"k": "v"}
    assert osc["show"]["id"] == osc["show renamed"]["id"] == made["id"]
    assert made["id"] in {row["ID"] for row in osc["list"]}
    assert osc["list old name"] == []


def test_openstackclient_shows_and_deletes_an_attachment(
    osc: dict[str, Any], cinder: Any
):
    shown = osc["attachment"]
    assert shown["Properties"]["access_mode"] == "ro"
    (row,) = [row for row in osc["attachments"] if row["ID"] == shown["ID"]]
    assert row["Status"] == "attached"
    assert cinder.volumes.find(name="osc-attached").status == "available"


def test_openstackclient_lists_and_disables_services(osc: dict[str, Any], cinder: Any):
    binaries = {row["Binary"] for row in osc["services"]}
    assert binaries == {"cinder-scheduler", "cinder-volume"}
    (row,) = osc["disabled"]
    assert (row["Status"], row["Disabled Reason"]) == ("disabled", "disks")
    (line,) = cinder.services.list(binary="cinder-volume")
    assert line.status == "enabled"
    assert osc["pools"][0]["Name"] == f"{line.host}#fake"


def test_the_cinder_command_attaches_and_detaches(endpoint: str):
    words = [str(BIN / "cinder"), "--os-auth-type", "noauth", "--os-endpoint", endpoint]
    words += ["--os-user-id", "U", "--os-project-id", "P"]
    words += ["--os-volume-api-version", "3.71"]

    def cinder(command: str) -> str:
        done = subprocess.run(
            [*words, *command.split()], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def value(table: str, name: str) -> str:
        """The first value of that name in a table of two columns."""
        rows = (line.split("|") for line in table.splitlines() if "|" in line)
        return next(row[2].strip() for row in rows if row[1].strip() == name)

    volume = value(cinder("create 1 --name by-command"), "id")
    asked = f"--connect True --initiator {initiator('c')} --host c --ip 127.0.0.1"
    made = cinder(f"attachment-create {volume} {SERVER} {asked} --mode ro")
    assert value(made, "access_mode") == "ro"
    assert value(made, "auth_method") == "CHAP"
    cinder(f"attachment-complete {value(made, 'id')}")
    assert "in-use" in cinder("list")
    cinder(f"attachment-delete {value(made, 'id')}")
    cinder("delete by-command")


def test_cinderclient_creates_attaches_and_deletes_a_shared_volume(cinder: Any):
    kind = cinder.volume_types.create("lib", description="d")
    kind.set_keys({"multiattach": "<is> True"})
    assert kind.get_keys() == {"multiattach": "<is> True"}
    volume = cinder.volumes.create(
        1, name="lib", volume_type="lib", metadata={"a": "b"}
    )
    writer = cinder.attachments.create(volume.id, connector("w"), SERVER, "rw")
    reader = cinder.attachments.create(volume.id, None, None, "ro")
    opened = cinder.attachments.update(reader["id"], connector("r"))
    assert opened.connection_info["access_mode"] == "ro"
    for ident in (writer["id"], reader["id"]):
        cinder.attachments.complete(ident)
    found = cinder.volumes.find(name="lib")
    assert found.status == "in-use"
    assert {a["host_name"] for a in found.attachments} == {"w", "r"}
    listed = cinder.attachments.list(search_opts={"volume_id": volume.id})
    assert {a.id for a in listed} == {writer["id"], reader["id"]}
    with pytest.raises(exceptions.BadRequest, match="attachments"):
        cinder.volumes.delete(volume)
    for ident in (writer["id"], reader["id"]):
        cinder.attachments.delete(ident)
    assert cinder.volumes.get(volume.id).status == "available"
    cinder.volumes.update(volume, name="lib-2", description="")
    cinder.volumes.delete(volume)


def test_cinderclient_pages_and_counts(cinder: Any):
    made = {cinder.volumes.create(1, name=f"page-{n}").id for n in range(5)}
    opts = {"name~": "page-"}
    listed = cinder.volumes.list(limit=2, search_opts=opts, sort="name:asc")
    assert [volume.name for volume in listed] == ["page-0", "page-1"]
    every = cinder.volumes.list(search_opts=opts)
    assert {volume.id for volume in every} == made
    _, count = cinder.volumes.list(search_opts={**opts, "with_count": True})
    assert count == 5


def test_cinderclient_understands_the_errors(cinder: Any):
    with pytest.raises(exceptions.NotFound, match=SERVER) as caught:
        cinder.volumes.get(SERVER)
    assert caught.value.request_id.startswith("req-")
    with pytest.raises(exceptions.BadRequest, match=r"volume\.size"):
        cinder.volumes.create(0)
