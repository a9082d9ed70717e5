# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The abilities of drivers: names are checked, and the agent uses them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import Mode, NewAttachment
from lunshare.drivers import base
from lunshare.drivers.abilities import TargetAbilities, VolumeAbilities, sentence
from lunshare.drivers.fake.fake_driver import FakeVolumes
from tests.stands.node import (
    CTX,
    Node,
    attach,
    host_connector,
    initiator,
    node_fixture,
    rows,
)

# A node whose hosts reach the disks without a target.
node = node_fixture(backends="share", section="fake_enforces = False")


def test_a_misspelt_ability_is_an_error_at_import():
    with pytest.raises(TypeError, match="keeps_snapshot"):
        VolumeAbilities(keeps_snapshot=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="ABILITIES of Odd"):

        class Odd(FakeVolumes):
            ABILITIES = {"supports_snapshots": True}  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [VolumeAbilities, TargetAbilities])
def test_every_ability_has_a_sentence_and_is_false_by_default(kind):
    for each in fields(kind):
        assert sentence(kind(), each.name).endswith(".")
        assert getattr(kind(), each.name) is False


@pytest.mark.parametrize("kind", [VolumeAbilities, TargetAbilities])
def test_the_page_for_authors_has_every_ability(kind):
    page = Path(__file__).parents[2].joinpath("docs/adding-a-driver.md").read_text()
    for each in fields(kind):
        says = each.metadata["sentence"].replace("``", "`")
        assert f"| `{each.name}` | {says} |" in page


def test_a_driver_of_another_contract_is_refused(monkeypatch: pytest.MonkeyPatch):
    from lunshare.drivers import registry
    from lunshare.drivers.errors import Misconfigured

    assert FakeVolumes.CONTRACT == base.CONTRACT == 2
    monkeypatch.setattr(FakeVolumes, "CONTRACT", 1)
    with pytest.raises(Misconfigured, match=r"contract 1, and this lunshare has .* 2"):
        registry.volume_driver("fake")


def test_read_only_on_a_target_that_does_not_enforce_it_is_refused(node: Node):
    volume = node.plain_volume()
    for new in (
        NewAttachment(volume.id, mode=Mode.RO),
        NewAttachment(volume.id, mode=Mode.RO, connector=host_connector("a")),
        NewAttachment(volume.id, connector=host_connector("a", mode="ro")),
    ):
        with pytest.raises(Conflict, match="target_driver fake of backend share does"):
            node.services.attachments.create(CTX, new)
    assert rows(node) == []
    assert attach(node, volume, "a", "rw").connection_info


def test_a_writers_policy_and_a_change_of_mode_are_refused_there(node: Node):
    volume = node.plain_volume()
    row = attach(node, volume, "a")
    with pytest.raises(Conflict, match="does not enforce read-only"):
        node.services.mode_changes.change(CTX, row.id, Mode.RO)
    assert node.services.attachments.get(CTX, row.id).mode is Mode.RW
    node.services.attachments.delete(CTX, row.id)
    policy = {"lunshare:writers": ""}
    node.services.metadata.change(CTX, volume.id, lambda _: policy)
    with pytest.raises(Conflict, match="does not enforce read-only"):
        attach(node, volume, "a")


def test_a_later_read_only_connector_is_refused(node: Node):
    volume = node.plain_volume()
    row = node.services.attachments.create(CTX, NewAttachment(volume.id))
    late = host_connector("a", mode="ro")
    with pytest.raises(Conflict, match="does not enforce read-only"):
        node.services.attachments.connect(CTX, row.id, late)
    assert [(each.status, each.initiator) for each in rows(node)] == [
        ("reserved", None)
    ]


def test_a_host_that_cannot_be_fenced_is_not_replaced_by_another(
    node: Node, capfd: pytest.CaptureFixture[str]
):
    volume = node.plain_volume()
    row = attach(node, volume, "a")
    with pytest.raises(Conflict, match="does not end a host's access; delete"):
        node.services.attachments.connect(CTX, row.id, host_connector("b"))
    [left] = rows(node)
    assert (left.initiator, left.former_initiator) == (initiator("a"), None)
    node.services.attachments.delete(CTX, row.id)
    assert rows(node) == []


def test_pool_stats_report_the_abilities_of_the_drivers(node: Node):
    [pool] = node.services.node.pools(CTX)
    assert pool.capabilities["enforces_read_only"] is False
    assert pool.capabilities["fences"] is False


def test_a_host_of_a_target_that_reports_none_has_no_problem(node: Node):
    """Each line said that the target allows nothing: exit code 5."""
    volume = node.shared_volume()
    row = attach(node, volume, "a", Mode.RW)
    (line,) = node.services.hosts.list(CTX, volume.id)
    assert (line.allowed, line.sessions, line.problem) == (None, None, "")
    live = node.services.hosts.of_attachment(row)
    assert live
    assert (live.allowed, live.addresses, live.problem) == (None, None, "")
