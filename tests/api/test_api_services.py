# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Services and pools, as operators and schedulers use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.calls import BINARY, Api
from tests.stands.node import Node


def test_services_are_listed_and_filtered(api: Api, host: str):
    lines = api("GET", "/os-services")["services"]
    assert {line["binary"] for line in lines} == {"cinder-scheduler", BINARY}
    assert all(line["state"] == "up" for line in lines)
    assert host.endswith("@api")
    assert api.service(host)["host"] == host
    assert api("GET", "/os-services?host=mars")["services"] == []


def test_the_name_of_a_node_selects_its_backends_too(api: Api, host: str):
    node = host.partition("@")[0]
    lines = api("GET", f"/os-services?host={node}")["services"]
    assert {line["host"] for line in lines} == {node, host}
    assert api.service(node)["host"] == host
    assert api("GET", f"/os-services?host={node[:-1]}")["services"] == []
    assert api("GET", f"/os-services?host={host}@")["services"] == []
    sentence = api.fault(
        404, "PUT", "/os-services/disable", {"host": node, "binary": BINARY}
    )
    assert node in sentence


def test_a_disabled_service_gets_no_new_volume(api: Api, host: str):
    asked = {"host": host, "binary": BINARY}
    done = api("PUT", "/os-services/disable", asked)
    assert done == {**asked, "service": BINARY, "status": "disabled", "disabled": True}
    assert api.service(host)["status"] == "disabled"
    assert api.volume()["status"] == "error"

    done = api("PUT", "/os-services/enable", asked)
    assert done == {**asked, "service": BINARY, "status": "enabled", "disabled": False}
    assert api.service(host)["status"] == "enabled"
    api.volume()


def test_a_reason_is_stored_until_the_service_is_enabled(api: Api, host: str):
    asked = {"host": host, "service": BINARY, "disabled_reason": "new disks"}
    done = api("PUT", "/os-services/disable-log-reason", asked)
    assert done["disabled_reason"] == "new disks"
    assert api.service(host)["disabled_reason"] == "new disks"
    api("PUT", "/os-services/enable", {"host": host, "binary": BINARY})
    assert api.service(host)["disabled_reason"] is None


def test_a_renamed_node_keeps_what_is_disabled_and_frozen(tmp_path: Path) -> None:
    before = Node(tmp_path, "host = before", "one,two,three").start()
    for name, state in (("one", "disable"), ("two", "freeze")):
        asked = {"host": f"before@{name}"}
        more = {"binary": BINARY} if state == "disable" else {}
        Api(before.assembly.app)("PUT", f"/os-services/{state}", asked | more)
    scheduler = {"host": "before", "binary": "cinder-scheduler"}
    Api(before.assembly.app)("PUT", "/os-services/disable", scheduler)
    before.close()
    node = Node(tmp_path, "host = after", "one,two,three").start()
    api = Api(node.assembly.app)
    lines = {line["host"]: line for line in api("GET", "/os-services")["services"]}
    status = {name: line["status"] for name, line in lines.items()}
    assert status == {
        "after": "disabled",
        "after@one": "disabled",
        "after@two": "disabled",
        "after@three": "enabled",
    }
    assert lines["after@two"]["frozen"] is True
    asked = {"host": "after@one", "binary": BINARY}
    api("PUT", "/os-services/enable", asked)
    api("PUT", "/os-services/thaw", {"host": "after@two"})
    node.close()
    again = Node(tmp_path, "host = before", "one,two,three").start()
    lines = Api(again.assembly.app)("GET", "/os-services")["services"]
    status = {line["host"]: line["status"] for line in lines}
    del status["before"]
    assert set(status.values()) == {"enabled"}
    again.close()


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("enable", {}),
        ("enable", {"binary": BINARY}),
        ("disable", {"host": "h"}),
        ("disable", {"host": 1, "binary": BINARY}),
        ("disable", {"host": "h", "binary": BINARY, "colour": "red"}),
        ("disable-log-reason", {"host": "h", "binary": BINARY}),
        (
            "disable-log-reason",
            {"host": "h", "binary": BINARY, "disabled_reason": "x" * 256},
        ),
    ],
)
def test_an_incomplete_change_of_a_service_is_400(api: Api, action: str, body: Any):
    api.fault(400, "PUT", f"/os-services/{action}", body)


def test_an_unknown_service_is_404(api: Api, host: str):
    for asked in ({"host": "mars", "binary": BINARY}, {"host": host, "binary": "x"}):
        api.fault(404, "PUT", "/os-services/disable", asked)


def test_pools_are_named_host_backend_pool(api: Api, host: str):
    (short,) = api("GET", "/scheduler-stats/get_pools")["pools"]
    assert short == {"name": f"{host}#api"}
    (full,) = api("GET", "/scheduler-stats/get_pools?detail=True")["pools"]
    assert full["name"] == short["name"]
    assert full["capabilities"]["multiattach"] is True
    assert full["capabilities"]["total_capacity_gb"] == 1000.0


def test_pools_are_filtered_from_3_28_on(api: Api, host: str):
    path = "/scheduler-stats/get_pools"
    for query, count in {
        f"?name={host}%23api": 1,
        "?name=mars": 0,
        "?multiattach=true": 1,
        "?multiattach=false": 0,
        "?colour=red": 0,
    }.items():
        assert len(api("GET", path + query)["pools"]) == count, query
    assert len(api.at("3.27")("GET", f"{path}?name=mars")["pools"]) == 1
    assert "detail" in api.fault(400, "GET", f"{path}?detail=perhaps")


def test_pools_are_filtered_by_type_from_3_35_on(api: Api, host: str):
    path = "/scheduler-stats/get_pools?volume_type="
    shared = api.type(multiattach="<is> True")
    gold = api.type(volume_backend_name="gold")
    for ident in (shared["id"], shared["name"], "standard"):
        assert api("GET", path + ident)["pools"] == [{"name": f"{host}#api"}]
    assert api("GET", path + gold["name"])["pools"] == []
    assert api("GET", f"{path}{shared['id']}&name=mars")["pools"] == []
    assert "silver" in api.fault(404, "GET", f"{path}silver")
    assert "volume_type" in api.at("3.34").fault(400, "GET", path + gold["name"])
