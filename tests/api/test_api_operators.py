# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Frozen backends, log levels, hosts, zones, and what the API says of itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.calls import BINARY, Api
from tests.stands.node import connector, node_fixture

NOWHERE = "11111111-2222-3333-4444-555555555555"


# A node of its own: what is frozen here is not in other tests.
node = node_fixture("module", backends="operated")


@pytest.fixture
def frozen(api: Api, host: str) -> Iterator[None]:
    api("PUT", "/os-services/freeze", {"host": host})
    yield
    api("PUT", "/os-services/thaw", {"host": host})


def test_a_frozen_backend_is_shown_and_gets_no_volume(
    api: Api, host: str, frozen: None
):
    line = api.service(host)
    assert (line["frozen"], line["status"]) == (True, "disabled")
    assert line["disabled_reason"] == "frozen"
    assert api.volume()["status"] == "error"


def test_a_thawed_backend_is_as_it_was(api: Api, host: str):
    api("PUT", "/os-services/freeze", {"host": host})
    api("PUT", "/os-services/thaw", {"host": host})
    line = api.service(host)
    assert (line["frozen"], line["status"]) == (False, "enabled")
    assert line["disabled_reason"] is None
    api("DELETE", f"/volumes/{api.volume()['id']}", status=202)


def test_nothing_on_a_frozen_backend_is_deleted(api: Api, host: str):
    volume = api.volume()
    other = api.volume()
    snapshot = api.snapshot(volume["id"])
    api("PUT", "/os-services/freeze", {"host": host})
    try:
        refused = (
            ("DELETE", f"/volumes/{other['id']}", None),
            ("DELETE", f"/volumes/{volume['id']}?cascade=true", None),
            ("DELETE", f"/volumes/{other['id']}?force=true", None),
            ("DELETE", f"/snapshots/{snapshot['id']}", None),
            ("POST", "/snapshots", {"snapshot": {"volume_id": volume["id"]}}),
        )
        for method, path, body in refused:
            assert "frozen" in api.fault(400, method, path, body)
        # Hosts continue to use it.
        row = api.attachment(volume["id"], connector=connector("h"))
        api("DELETE", f"/attachments/{row['id']}")
    finally:
        api("PUT", "/os-services/thaw", {"host": host})
    assert len(api("GET", "/snapshots")["snapshots"]) == 1
    api("DELETE", f"/volumes/{volume['id']}?cascade=true", status=202)
    api.gone(f"/volumes/{volume['id']}")


def test_a_change_of_the_service_does_not_thaw_it(api: Api, host: str, frozen: None):
    api("PUT", "/os-services/enable", {"host": host, "binary": BINARY})
    assert api.service(host)["frozen"] is True
    volume = api.volume()
    assert "frozen" in api.fault(400, "DELETE", f"/volumes/{volume['id']}")


def test_a_backend_is_frozen_and_thawed_once(api: Api, host: str, frozen: None):
    asked = {"host": host}
    assert "frozen already" in api.fault(400, "PUT", "/os-services/freeze", asked)
    api("PUT", "/os-services/thaw", asked)
    assert "not frozen" in api.fault(400, "PUT", "/os-services/thaw", asked)
    api("PUT", "/os-services/freeze", asked)


@pytest.mark.parametrize("verb", ["freeze", "thaw"])
@pytest.mark.parametrize(
    "body", [{}, {"host": ""}, {"host": "mars@x"}, {"host": "h", "colour": "red"}]
)
def test_a_wrong_host_is_400(api: Api, verb: str, body: dict[str, Any]):
    api.fault(400, "PUT", f"/os-services/{verb}", body)


@pytest.mark.parametrize("verb", ["failover_host", "failover"])
def test_fail_over_is_refused_clearly(api: Api, host: str, verb: str):
    asked = {"host": host, "backend_id": "other"}
    assert "not replicated" in api.fault(400, "PUT", f"/os-services/{verb}", asked)
    assert "host" in api.fault(400, "PUT", f"/os-services/{verb}", {})


def test_fail_over_by_that_name_exists_from_3_26_on(api: Api, host: str):
    before = api.at("3.25")
    before.fault(404, "PUT", "/os-services/failover", {"host": host})
    before.fault(400, "PUT", "/os-services/failover_host", {"host": host})


@pytest.fixture
def quiet() -> Iterator[logging.Logger]:
    """The logger whose level a test changes."""
    logger = logging.getLogger("lunshare.agent.service.volumes.create")
    everyone = [logging.getLogger(n) for n in _names()] + [
        logging.getLogger("lunshare")
    ]
    levels = [(each, each.level) for each in everyone]
    yield logger
    for each, level in levels:
        each.setLevel(level)


def _names() -> list[str]:
    return [n for n in logging.root.manager.loggerDict if n.startswith("lunshare")]


def test_a_log_level_is_changed_and_has_an_effect(
    api: Api, quiet: logging.Logger, caplog: pytest.LogCaptureFixture
):
    def logged() -> bool:
        caplog.clear()
        api.volume()
        return any("volume created" in each for each in caplog.messages)

    asked = {"prefix": "lunshare.agent.service", "level": "error"}
    assert api("PUT", "/os-services/set-log", asked, 202) is None
    assert not quiet.isEnabledFor(logging.INFO)
    assert not logged()
    api("PUT", "/os-services/set-log", {"level": "DEBUG", "binary": "*"}, 202)
    assert quiet.isEnabledFor(logging.DEBUG)
    assert logged()


def test_log_levels_are_listed_by_service(api: Api, host: str, quiet: logging.Logger):
    prefix = "lunshare.agent.service.volumes"
    api("PUT", "/os-services/set-log", {"prefix": prefix, "level": "ERROR"}, 202)
    found = api("PUT", "/os-services/get-log", {"prefix": prefix})["log_levels"]
    assert {row["binary"] for row in found} == {
        "cinder-api",
        "cinder-scheduler",
        BINARY,
    }
    for row in found:
        assert row["levels"][quiet.name] == "ERROR"
        assert all(name.startswith(prefix) for name in row["levels"])
    for asked in ({"binary": BINARY}, {"server": host}):
        (row,) = api("PUT", "/os-services/get-log", asked)["log_levels"]
        assert (row["binary"], row["host"]) == (BINARY, host)
    other = {"server": "mars", "level": "DEBUG"}
    api("PUT", "/os-services/set-log", {**other, "prefix": prefix}, 202)
    assert quiet.getEffectiveLevel() == logging.ERROR
    del other["level"]
    assert api("PUT", "/os-services/get-log", other)["log_levels"] == []


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, "level"),
        ({"level": ""}, "level"),
        ({"level": "loud"}, "level"),
        ({"level": None}, "level"),
        ({"level": "DEBUG", "binary": "nova-api"}, "binary"),
        ({"level": "DEBUG", "prefix": "sqlalchemy"}, "prefix"),
        ({"level": "DEBUG", "prefix": "lunshared"}, "prefix"),
        ({"level": "DEBUG", "prefix": 1}, "prefix"),
        ({"level": "DEBUG", "colour": "red"}, "colour"),
    ],
    ids=str,
)
def test_a_wrong_log_level_is_400(api: Api, asked: dict[str, Any], named: str):
    assert named in api.fault(400, "PUT", "/os-services/set-log", asked)


def test_log_levels_exist_from_3_32_on(api: Api):
    before = api.at("3.31")
    before.fault(404, "PUT", "/os-services/set-log", {"level": "DEBUG"})
    before.fault(404, "PUT", "/os-services/get-log", {})
    assert "prefix" in api.fault(400, "PUT", "/os-services/get-log", {"prefix": "sql"})


def test_the_zone_is_listed(api: Api):
    (zone,) = api("GET", "/os-availability-zone")["availabilityZoneInfo"]
    assert zone == {"zoneName": "nova", "zoneState": {"available": True}}


def test_hosts_are_listed_with_what_is_on_them(api: Api, host: str):
    rows = {row["host_name"]: row for row in api("GET", "/os-hosts")["hosts"]}
    assert rows[host]["service"] == BINARY
    assert rows[host]["service-status"] == "available"
    assert rows[host]["service-state"] == "enabled"
    before = {row["project"]: row for row in _resources(api, host)}
    api.snapshot(api.volume(size=2)["id"])
    api.volume()
    total, *projects = _resources(api, host)
    own = next(row for row in projects if row["project"] == api.project)
    assert own == {
        "host": host,
        "project": api.project,
        "volume_count": "2",
        "total_volume_gb": "3",
        "snapshot_count": "1",
        "total_snapshot_gb": "2",
    }
    assert total["project"] == "(total)"
    old = int(before["(total)"]["total_volume_gb"])
    assert int(total["total_volume_gb"]) == old + 3


def _resources(api: Api, host: str) -> list[dict[str, Any]]:
    return [row["resource"] for row in api("GET", f"/os-hosts/{host}")["host"]]


def test_an_unknown_host_is_404(api: Api):
    assert "mars" in api.fault(404, "GET", "/os-hosts/mars")


def test_extensions_are_listed(api: Api):
    found = api("GET", "/extensions")["extensions"]
    aliases = {row["alias"] for row in found}
    assert {"os-quota-sets", "qos-specs", "os-volume-type-access"} <= aliases
    assert "backups" not in aliases
    (one,) = (row for row in found if row["alias"] == "os-services")
    assert api("GET", "/extensions/os-services")["extension"] == one
    assert "backups" in api.fault(404, "GET", "/extensions/backups")


def test_filters_are_listed_from_3_33_on(api: Api):
    found = api("GET", "/resource_filters")["resource_filters"]
    by_name = {row["resource"]: row["filters"] for row in found}
    assert "status" in by_name["volume"]
    assert by_name["pool"] == ["name", "volume_type"]
    (one,) = api("GET", "/resource_filters?resource=pool")["resource_filters"]
    assert one == {"resource": "pool", "filters": by_name["pool"]}
    assert api("GET", "/resource_filters?resource=x")["resource_filters"] == []
    api.at("3.32").fault(404, "GET", "/resource_filters")


def test_a_node_is_in_no_cluster(api: Api):
    for path in ("/clusters", "/clusters/detail"):
        assert api("GET", path)["clusters"] == []
        api.at("3.6").fault(404, "GET", path)
    assert "c1" in api.fault(404, "GET", "/clusters/c1")
    asked = {"name": "c1", "binary": BINARY}
    reason = asked | {"disabled_reason": "disks"}
    for path, body in (("/clusters/enable", asked), ("/clusters/disable", reason)):
        assert "cluster c1" in api.fault(404, "PUT", path, body)
        assert "name" in api.fault(400, "PUT", path, {"binary": BINARY})
    assert "binary" in api.fault(400, "PUT", "/clusters/enable", {**asked, "binary": 1})


def test_there_is_nothing_to_clean_up(api: Api):
    answer = api("POST", "/workers/cleanup", {"binary": BINARY}, 202)
    assert answer == {"cleaning": [], "unavailable": []}
    api.at("3.23").fault(404, "POST", "/workers/cleanup", {})
    assert "colour" in api.fault(400, "POST", "/workers/cleanup", {"colour": 1})
