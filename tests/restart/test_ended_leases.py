# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A lease that ends while no daemon runs, or with the boot of the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lunshare.agent import boot_clock
from lunshare.agent.db import attachments
from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.model.records import Attachment, Mode, Volume
from lunshare.agent.service.attachments import lease_terms
from lunshare.drivers.fake import fake_storage
from tests.stands.node import CTX, Node, attach, initiator
from tests.unit.test_mode_change import set_metadata

RO, RW = Mode.RO, Mode.RW
ALPHA, BETA = initiator("alpha"), initiator("beta")

Left = tuple[Volume, Attachment]


def leave(path: Path, then_next: bool = False, **values: Any) -> Left:
    """A node that has stopped, whose volume alpha writes with a lease."""
    fake_storage.reset()
    first = Node(path).start()
    volume = first.shared_volume()
    set_metadata(first, volume, writers="alpha, beta", max_writers="1")
    row, _ = (attach(first, volume, name, "ro") for name in ("alpha", "beta"))
    lease = NewLease(3600, then_next)
    row = first.services.mode_changes.change(CTX, row.id, RW, lease=lease).row
    with first.assembly.database.writing() as connection:
        attachments.set_values(connection, row.id, **values)
    first.close()
    return volume, row


def start(path: Path, volume: Volume, restarted: bool) -> tuple[Node, list[Any]]:
    """Start a node; return with it what alpha may at each step of the target."""
    seen: list[Any] = []
    node, exports = Node(path), fake_storage.storage("fake").exports
    if restarted:  # the kernel of the new boot exports nothing
        exports.clear()

    def look(_: str) -> None:
        acls = exports.get(volume.id, {})
        seen.append({name: acl.mode for name, acl in acls.items()})

    node.target().failures.watch(look)
    return node.start(), seen


@pytest.mark.parametrize("then_next", [True, False])
def test_a_lease_that_has_ended_meanwhile(tmp_path: Path, then_next: bool) -> None:
    """No daemon, no fence: the target goes on. The next start begins with it."""
    volume, row = leave(tmp_path, then_next, lease_ends=boot_clock.seconds() - 1)
    node, seen = start(tmp_path, volume, restarted=False)
    assert seen[0] == {ALPHA: RW, BETA: RO}
    assert not [live for live in seen if list(live.values()).count(RW) > 1]
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW if then_next else RO}
    state = lease_terms.state(node.services.attachments.get(CTX, row.id))
    assert state is not None
    assert state.status == "ended"
    node.close()


def test_one_that_has_not_ended_goes_on(tmp_path: Path) -> None:
    volume, row = leave(tmp_path)
    node, _ = start(tmp_path, volume, restarted=False)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}
    node.services.leases.renew(CTX, row.id)
    node.close()


@pytest.mark.parametrize("then_next", [True, False])
def test_a_boot_ends_every_lease_before_anything_is_opened(
    tmp_path: Path, then_next: bool
) -> None:
    """How old it is, nobody knows: its seconds are of the clock of another boot."""
    lease = {"ttl": 3600, "then": "next" if then_next else None, "boot": "another"}
    volume, row = leave(tmp_path, lease=lease)
    node, seen = start(tmp_path, volume, restarted=True)
    assert RW not in [live.get(ALPHA) for live in seen]
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW if then_next else RO}
    with pytest.raises(Conflict, match="has ended"):
        node.services.leases.renew(CTX, row.id)
    node.close()


def test_what_has_ended_is_closed_before_other_volumes(tmp_path: Path) -> None:
    volume, row = leave(tmp_path)
    first = Node(tmp_path).start()
    volumes = [first.shared_volume() for _ in range(3)]
    rows = {each.id: attach(first, each, "alpha") for each in volumes}
    rows[volume.id] = row
    last = max(rows)
    first.services.mode_changes.change(CTX, rows[last].id, RW, lease=NewLease(3600))
    with first.assembly.database.writing() as connection:
        for each in rows.values():
            attachments.set_values(connection, each.id, lease_ends=None)
        attachments.set_values(connection, rows[last].id, lease_ends=0.0)
    first.close()
    exports = fake_storage.storage("fake").exports
    exports.clear()
    node = Node(tmp_path).start()
    assert next(iter(exports)) == last
    assert node.live(last)[ALPHA] == RO
    node.close()


def test_a_renewal_does_not_revive_one_of_another_boot(tmp_path: Path) -> None:
    """Also before the start has come to it."""
    lease = {"ttl": 3600, "then": None, "boot": "another"}
    _, row = leave(tmp_path, lease=lease)
    node = Node(tmp_path)
    with pytest.raises(Conflict, match="has ended"):
        node.services.leases.renew(CTX, row.id)
    node.start().close()
