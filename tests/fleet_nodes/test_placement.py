# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock scheduler places volumes over the four backends of two nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.api import SHARED
from tests.fleet_nodes.fleet import THIN_RATIO, Fleet
from tests.fleet_nodes.transcript import say
from tests.stands.waiting import until

THICK = {**SHARED, "thick_provisioning_support": "<is> True"}
THIN = {**SHARED, "thin_provisioning_support": "<is> True"}
ANY_THIN = {"node1@thin", "node2@thin"}
ANY_THICK = {"node1@thick", "node2@thick"}
NOWHERE = "no valid backend was found"
#: What a foreign volume takes of node1's group, and what is left there, in GiB.
TAKEN, LEFT = 5.9, 2.1
#: A group without volumes has more.
EMPTY = 7.9


@pytest.fixture(scope="module")
def full(fleet: Fleet) -> Iterator[Fleet]:
    """Most of node1's volume group is taken by a volume that is not Cinder's."""
    are_wiped(fleet)
    first = fleet.nodes["node1"]
    first.must("lvcreate", "-q", "--size", f"{TAKEN}g", "--name", "other", "lunshare")
    until(lambda: free(fleet, "node1@thick") < LEFT, "the scheduler knows", 300)
    yield fleet
    first.must("lvremove", "-qq", "--yes", "lunshare/other")
    until(lambda: free(fleet, "node1@thick") > LEFT, "the scheduler knows", 300)


def free(fleet: Fleet, backend: str) -> float:
    """The free space that the scheduler knows, in GiB."""
    return float(fleet.controller.pools()[backend]["free_capacity_gb"])


def are_wiped(fleet: Fleet) -> None:
    """Wait until no deleted volume takes space of a group."""
    until(
        lambda: min(free(fleet, each) for each in ANY_THICK) > EMPTY,
        "deleted thick volumes are wiped",
        300,
    )


def create(client: Client, specs: Mapping[str, str], size: int) -> tuple[str, str]:
    """Create a volume of such a type; its id, and the backend that has it."""
    name = ",".join(f"{key}={value}" for key, value in specs.items()) or "anything"
    asked = {"size": size, "volume_type": api.volume_type(client, name, specs)}
    volume_id = client("POST", "/volumes", {"volume": asked})["volume"]["id"]
    api.reaches(client, volume_id, "available", "error")
    host = api.show(client, volume_id)["os-vol-host-attr:host"]
    return volume_id, host.partition("#")[0] if host else NOWHERE


def test_scheduler_knows_what_four_backends_can_do(fleet: Fleet) -> None:
    pools = fleet.controller.pools()
    assert pools.keys() == ANY_THIN | ANY_THICK
    for name, pool in pools.items():
        node, _, backend = name.partition("@")
        thin = backend == "thin"
        assert pool["backend_state"] == "up"
        assert pool["thin_provisioning_support"] is thin
        assert pool["thick_provisioning_support"] is not thin
        for ability in ("multiattach", "enforces_read_only", "fences"):
            assert pool[ability] is True
        if thin:
            assert float(pool["max_over_subscription_ratio"]) == THIN_RATIO[node]
        say(f"{name}: {pool['free_capacity_gb']} GiB free, thin {thin}, multiattach")
    places = {pools[name]["location_info"] for name in pools}
    assert len(places) == 4


def test_both_nodes_get_volumes(fleet: Fleet, client: Client) -> None:
    are_wiped(fleet)
    made = [create(client, THICK, 1) for _ in range(4)]
    nodes = {backend.partition("@")[0] for _, backend in made}
    say(f"four thick volumes: {sorted(backend for _, backend in made)}")
    for volume_id, _ in made:
        api.delete(client, volume_id)
    assert nodes == {"node1", "node2"}


@pytest.mark.parametrize(
    ("specs", "size", "backends"),
    [
        (SHARED, 1, ANY_THIN | ANY_THICK),
        ({"capabilities:enforces_read_only": "<is> True"}, 1, ANY_THIN | ANY_THICK),
        ({"multiattach": "<is> False"}, 1, {NOWHERE}),
        ({"storage_protocol": "nfs"}, 1, {NOWHERE}),
        (THICK, 4, {"node2@thick"}),  # node1 has 2 GiB
        (THICK, 9, {NOWHERE}),
        ({**THICK, "volume_backend_name": "node1-thick"}, 4, {NOWHERE}),
        (THIN, 10, ANY_THIN),
        (THIN, 100, {"node1@thin"}),  # node2 may promise twice its 8 GiB
        (THIN, 1000, {NOWHERE}),
    ],
)
def test_volume_is_placed_by_capabilities_and_space(
    full: Fleet, client: Client, specs: Mapping[str, str], size: int, backends: set[str]
) -> None:
    volume_id, found = create(client, specs, size)
    say(f"{size} GiB of type {dict(specs)}: {found}")
    api.delete(client, volume_id)
    assert found in backends


def test_thick_volumes_fill_a_node_and_no_more(full: Fleet, client: Client) -> None:
    until(lambda: free(full, "node2@thick") > EMPTY, "deleted volumes are wiped", 300)
    made = [create(client, THICK, 3) for _ in range(3)]
    say(f"three thick volumes of 3 GiB: {[backend for _, backend in made]}")
    small, where = create(client, THICK, 1)
    say(f"and one of 1 GiB: {where}")
    for volume_id in (small, *(each for each, _ in made)):
        api.delete(client, volume_id)
    assert [backend for _, backend in made] == ["node2@thick"] * 2 + [NOWHERE]
    assert where in ANY_THICK
