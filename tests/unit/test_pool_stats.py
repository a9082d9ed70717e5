# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pool stats and health checks; no request waits for a backend that hangs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent import backends
from lunshare.agent.service.node import Node as NodeService
from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.api.calls import Api
from tests.stands.node import CTX, Node, node_fixture
from tests.stands.waiting import until

BOTH = "fake,second"


node = node_fixture(forget_storage=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fake_storage.reset()
    return tmp_path


def caps(node: Node, backend: str = "fake") -> dict[str, Any]:
    (pool,) = [p for p in pools(node) if p.backend == backend]
    return dict(pool.capabilities)


def pools(node: Node):
    service: NodeService = node.services.node
    return service.pools(CTX)


def refresh(node: Node) -> None:
    node.services.node.refresh()


def test_pool_stats_show_what_the_storage_holds(node: Node) -> None:
    before = caps(node)
    assert before["total_capacity_gb"] == before["free_capacity_gb"] == 1000.0
    assert before["provisioned_capacity_gb"] == before["total_volumes"] == 0
    assert before["thin_provisioning_support"] is True
    assert before["multiattach"] is node.driver().abilities.multiattach is True
    assert before["online_extend_support"] is node.driver().abilities.extends_open
    assert before["fences"] is before["enforces_read_only"] is True
    assert before["storage_protocol"] == node.target().PROTOCOL
    assert (before["backend_state"], before["state_reason"]) == ("up", None)

    volume = node.plain_volume(7)
    assert caps(node)["allocated_capacity_gb"] == 7
    assert caps(node)["provisioned_capacity_gb"] == 7
    node.driver().storage.foreign = 3 * GIB
    refresh(node)
    after = caps(node)
    assert after["free_capacity_gb"] == 997.0
    assert after["total_volumes"] == 1
    assert after["timestamp"] >= before["timestamp"]

    node.services.volumes.delete(CTX, volume.id)
    until(lambda: caps(node)["total_volumes"] == 0)
    assert caps(node)["allocated_capacity_gb"] == 0


def test_a_thick_backend_reports_thick_provisioning(path: Path) -> None:
    node = Node(path, "[fake]\nfake_thin = false\n[DEFAULT]").start()
    assert caps(node)["thin_provisioning_support"] is False
    assert caps(node)["thick_provisioning_support"] is True
    node.close()


def test_pool_stats_show_what_is_still_being_wiped(path: Path) -> None:
    extra = "[fake]\nfake_thin = false\nfake_wipe = true\n[DEFAULT]"
    node = Node(path, extra).start()
    volume = node.plain_volume(4)
    node.driver().delete(volume.id)
    refresh(node)
    assert (caps(node)["wipes"], caps(node)["wipes_left_gb"]) == (1, 4.0)
    (wipe,) = node.driver().wipes()
    node.driver().wipe(wipe.name, GIB)
    refresh(node)
    assert caps(node)["wipes_left_gb"] == 3.0
    node.close()


def test_a_failing_backend_is_down_with_its_reason(path: Path) -> None:
    node = Node(path, backends=BOTH).start()
    failed = CommandFailed(("vgs",), 5, "because of the test")
    with node.driver().failures.fail("capacity", failed):
        refresh(node)
    assert caps(node)["backend_state"] == "down"
    assert "because of the test" in caps(node)["state_reason"]
    assert caps(node, "second")["backend_state"] == "up"
    refresh(node)
    assert caps(node)["backend_state"] == "up"
    node.close()


def test_a_hanging_backend_delays_neither_others_nor_requests(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lunshare.agent.service.node.HANGING_SECONDS", 0.05)
    node = Node(path, backends=BOTH).start()
    api = Api(node.assembly.app)
    seen = caps(node, "second")["timestamp"]
    with node.driver().failures.hold("capacity") as gate:
        began = time.monotonic()
        refresh(node)
        assert gate.reached.wait(10)
        refresh(node)
        assert time.monotonic() - began < 5
        # The other one is checked again and again meanwhile.
        until(lambda: caps(node, "second")["timestamp"] > seen)
        assert len(api("GET", "/scheduler-stats/get_pools")["pools"]) == 2
        assert caps(node)["backend_state"] == "up"

        monkeypatch.setattr(backends, "LATE", 0.0)
        assert caps(node)["backend_state"] == "down"
        assert "its storage hangs" in caps(node)["state_reason"]
        for _ in range(3):
            refresh(node)
        said = "".join(capfd.readouterr())
        assert said.count("[fake] backend state: up=False problem=its check has") == 1
        volume = api.volume()
        shown = api("GET", f"/volumes/{volume['id']}")["volume"]
        assert "@second#" in shown["os-vol-host-attr:host"]
    until(lambda: caps(node)["backend_state"] == "up")
    node.close()


def test_one_backend_has_one_health_check_at_a_time(node: Node) -> None:
    backend = node.assembly.backends["fake"]
    with node.driver().failures.hold("check") as gate:
        first = backend.start_check()
        assert gate.reached.wait(10)
        assert backend.start_check() is first
    assert first.wait(10)
    assert backend.start_check() is not first


def test_the_first_reconcile_waits_for_a_slow_backend(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a boot a backend may have thousands of disks to activate."""
    monkeypatch.setattr("lunshare.agent.service.node.HANGING_SECONDS", 0.0)
    node = Node(path)
    node.driver().failures.watch(lambda _: time.sleep(0.02))
    node.start()
    assert caps(node)["backend_state"] == "up"
    node.close()


def test_a_closed_pool_gets_nothing_and_reports_why(node: Node) -> None:
    backend = node.assembly.backends["fake"]
    assert backend.capacity
    backend.capacity = replace(
        backend.capacity, closed="its data is 99 % full", data_percent=99.0
    )
    assert caps(node)["state_reason"] == "its data is 99 % full"
    assert caps(node)["data_percent"] == 99.0
    volume = node.plain_volume()
    assert (volume.status, volume.backend) == ("error", "")
    assert "its data is 99 % full" in (volume.status_reason or "")
