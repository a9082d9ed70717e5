# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A backend of Cinder's LVM driver is taken over with its hosts, and given back.

The hosts are real initiators that write and read without a pause all the time. The
steps are those of docs/fleet.md.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.bench.http import Client
from tests.cinder_guest import takeover_steps as steps
from tests.cinder_guest.node import OURS, PEER, Node, stop_lunshared
from tests.cinder_guest.scene import SPARE, Scene, auth_of
from tests.cinder_guest.takeover_steps import BACKEND
from tests.fleet import api
from tests.stands.waiting import until
from tests.system.lio_hosts import Refused

_SECTOR, _DATA_PROTECT = bytes(512), 7
_PROCESSES = 11  # that an attach starts with Cinder's driver, at least


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    stop_lunshared()
    with Node(tmp_path_factory.mktemp("cinder"), {BACKEND: PEER}) as made:
        yield made


def test_backend_is_taken_over_and_given_back(node: Node, client: Client) -> None:
    scene = Scene(client, node.directory)
    print(f"  Cinder's driver, an attach: {', '.join(scene.started)}")
    assert len(scene.started) >= _PROCESSES
    scene.beta.live().write(SPARE, _SECTOR)  # Cinder does not enforce its mode
    _try_without_permission(node, scene)
    _take_over(node, scene)
    _use_what_the_peer_created(scene, client)
    _use_new_and_old_hosts(scene)
    _give_back(node, scene)
    _end(scene, client)


def test_two_drivers_for_the_same_targets_are_refused(node: Node) -> None:
    node.stop_volume()
    second = f"{OURS}target_prefix = {steps.PREFIX}\n"
    node.backends = {BACKEND: PEER, "second": second}
    node.configure()
    steps.start(node, "section [lvm] has Cinder's LVM driver with the same")


def _try_without_permission(node: Node, scene: Scene) -> None:
    """Nothing of Cinder's is touched, also if the prefix is the same."""
    steps.take_over(node, allowed=False)
    steps.enable_unit_of_rtslib()
    steps.start(node, f"{steps.RTSLIB} is enabled: at a boot it removes every target")
    node.stop_volume(signal.SIGKILL)
    steps.mask_unit_of_rtslib()
    steps.start(node, steps.FOREIGN)
    scene.need_nothing_felt()
    assert scene.may_beta_write()
    node.stop_volume(signal.SIGKILL)


def _take_over(node: Node, scene: Scene) -> None:
    """It is killed when the first of the exports is changed, and starts again."""
    steps.restart_helper(f"target_prefix = {steps.PREFIX}\n", allowed=True)
    steps.start(node, "export changed")
    node.stop_volume(signal.SIGKILL)
    steps.start(node, "Driver post RPC initialization completed")
    scene.need_nothing_felt()
    scene.need_every_byte()
    _need_reader(scene)


def _need_reader(scene: Scene) -> None:
    """The host that Cinder let write reads the same LUN, and writes no more."""
    assert steps.maps_readers_lun(scene.shared, scene.beta.initiator)
    assert not scene.may_beta_write()
    with pytest.raises(Refused) as refused:
        scene.beta.live().write(SPARE, _SECTOR)
    assert refused.value.key == _DATA_PROTECT
    assert scene.beta.read() == scene.alpha_bytes
    assert scene.beta.live().serial == scene.serial


def _use_what_the_peer_created(scene: Scene, client: Client) -> None:
    """A snapshot and a clone of Cinder's driver, and a new clone of that snapshot."""
    copy = api.create(client, BACKEND, snapshot_id=scene.snapshot)
    for volume_id in (copy, scene.clone):
        reader = scene.attach(volume_id, "reader", "ro")
        assert reader.read() == scene.alpha_bytes
        scene.detach(reader)
        api.delete(client, volume_id)
    client("DELETE", f"/snapshots/{scene.snapshot}")
    api.gone(client, f"/snapshots/{scene.snapshot}")


def _use_new_and_old_hosts(scene: Scene) -> None:
    """A further host has the volume's old secret; after the last host, a new one."""
    delta = scene.attach(scene.shared, "delta", "rw")
    assert delta.read() == scene.alpha_bytes
    assert auth_of(delta) == auth_of(scene.alpha)
    scene.detach(delta)
    before = auth_of(scene.gamma)
    scene.attach_gamma_again()
    assert auth_of(scene.gamma) != before
    _need_no_process(scene)


def _need_no_process(scene: Scene) -> None:
    """An attach starts none. But the check of each minute starts lvs."""
    for _ in range(3):
        delta = scene.attach(scene.shared, "delta", "rw")
        started = scene.started
        scene.detach(delta)
        if not started:
            return
    raise AssertionError(f"three of three attaches started processes: {started}")


def _give_back(node: Node, scene: Scene) -> None:
    """Cinder's driver cannot enforce ro, so such hosts are detached before."""
    scene.detach(scene.beta)
    scene.remember()
    node.stop_volume()
    steps.start(node, "readers' LUN of")  # it is removed
    steps.give_back(node)
    steps.start(node, "Driver initialization completed")
    until(node.has_pools, "the backend is up", 300)
    scene.need_nothing_felt()
    scene.need_every_byte()


def _end(scene: Scene, client: Client) -> None:
    """Cinder's driver removes also what lunshare has created."""
    epsilon = scene.attach(scene.shared, "epsilon", "rw")
    assert epsilon.read() == scene.alpha_bytes
    scene.detach(epsilon)
    for host, volume_id in ((scene.alpha, scene.shared), (scene.gamma, scene.plain)):
        scene.detach(host)
        assert not steps.is_exported(volume_id)
        assert not steps.backstores(volume_id)
        api.delete(client, volume_id)
