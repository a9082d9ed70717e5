# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Another connector for an attachment, when the target does not follow."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from lunshare.agent.model.errors import BackendFailed, Invalid
from lunshare.agent.model.records import NewAttachment, Volume
from lunshare.drivers.errors import TargetFailed
from tests.stands.node import (
    CTX,
    Node,
    attach,
    failing_once,
    host_connector,
    initiator,
    node_fixture,
    rows,
)

REFUSED = TargetFailed("v", "because of the test")
FIRST = "6f2d5ac8-bbd8-4a8b-a1f1-b67e37d0b4d1"
SECOND = "0c9d55a3-74a5-4f0e-9a43-0b7f6d0c1f52"


node = node_fixture(forget_storage=True)


@pytest.fixture
def volume(node: Node) -> Volume:
    """A volume with the hosts "other" and "a"."""
    made = node.shared_volume()
    attach(node, made, "other")
    attach(node, made, "a")
    return made


def change_to_b(node: Node, failure: AbstractContextManager[object]) -> str:
    """Give the attachment of "a" the connector of "b", which fails; return its id."""
    (row,) = [each for each in rows(node) if each.initiator == initiator("a")]
    with failure, pytest.raises(BackendFailed):
        node.services.attachments.connect(CTX, row.id, host_connector("b"))
    return row.id


def test_a_replaced_connector_that_stays_open_is_remembered(
    node: Node, volume: Volume
) -> None:
    row = change_to_b(node, failing_once(node.target().failures, "apply.before"))
    node.services.attachments.delete(CTX, row)
    assert node.live(volume.id) == {initiator("other"): "rw"}


def test_a_failed_change_of_connector_can_be_retried_with_a_third_one(
    node: Node, volume: Volume
) -> None:
    row = change_to_b(node, node.target().failures.fail("apply.before", REFUSED))
    assert node.live(volume.id) == {initiator("other"): "rw", initiator("a"): "rw"}
    node.services.attachments.connect(CTX, row, host_connector("c"))
    assert node.live(volume.id) == {initiator("other"): "rw", initiator("c"): "rw"}


def test_reconcile_closes_a_change_of_connector_whose_cleanup_failed(
    node: Node, volume: Volume
) -> None:
    row = change_to_b(node, node.target().failures.fail("apply.before", REFUSED))
    assert node.services.attachments.get(CTX, row).former_initiator == initiator("a")
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {initiator("other"): "rw"}
    assert [each.former_initiator for each in rows(node)] == [None, None]


def test_a_failed_attachment_cannot_connect_when_another_has_the_volume(
    node: Node,
) -> None:
    volume = node.plain_volume()
    row = node.services.attachments.create(CTX, NewAttachment(volume.id))
    with (
        failing_once(node.target().failures, "apply.created"),
        pytest.raises(BackendFailed),
    ):
        node.services.attachments.connect(CTX, row.id, host_connector("a"))
    attach(node, volume, "b")
    with pytest.raises(Invalid, match="takes one attachment only"):
        node.services.attachments.connect(CTX, row.id, host_connector("a"))
    assert node.live(volume.id) == {initiator("b"): "rw"}


def test_a_failed_attachment_of_an_instance_takes_no_volume_from_another(
    node: Node,
) -> None:
    """Only what has the volume lets its instance attach it a second time."""
    volume = node.plain_volume()
    create = node.services.attachments.create
    row = create(CTX, NewAttachment(volume.id, FIRST))
    with (
        failing_once(node.target().failures, "apply.created"),
        pytest.raises(BackendFailed),
    ):
        node.services.attachments.connect(CTX, row.id, host_connector("a"))
    create(CTX, NewAttachment(volume.id, SECOND, connector=host_connector("b")))
    for asked in (None, host_connector("a")):
        with pytest.raises(Invalid, match="takes one attachment only"):
            create(CTX, NewAttachment(volume.id, FIRST, connector=asked))
    assert node.live(volume.id) == {initiator("b"): "rw"}
    create(CTX, NewAttachment(volume.id, SECOND, connector=host_connector("c")))
