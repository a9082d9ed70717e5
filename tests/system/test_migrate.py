# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thick volumes: migration to another volume group, and the wipe after a delete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lunshare.drivers.values import GIB
from tests.stands.waiting import until
from tests.system import groups
from tests.system.api import Api
from tests.system.hosts import block
from tests.system.units import run
from tests.system.volumes import MakeDaemon, MakeHost

pytestmark = pytest.mark.system

_THICK = {"lvm_type": "default"}


@pytest.fixture
def other_group() -> Iterator[str]:
    """A second volume group."""
    created = groups.acquire()
    yield created
    groups.release(created)


def test_volume_migrates_to_another_group_with_its_bytes_and_modes(
    daemon: MakeDaemon, host: MakeHost, other_group: str
) -> None:
    there = {"volume_driver": "lvm", "volume_group": other_group}
    node = daemon(
        node={"enabled_backends": "lvm,there"},
        backend={**_THICK, "wipe_rate": 0, "wipe_step": 1024},
        others={"there": there},
    ).start()
    api, writer = node.api, host("writer")
    volume = api.volume(volume_type=api.shared_type("lvm"))
    row = api.attach(volume, writer)
    with writer.login(row["connection_info"]) as session:
        session.write(0, block("migrates"))
    assert api.detach(row["id"])[0] == 200

    kind = api.shared_type("there")
    retype = {"new_type": kind, "migration_policy": "on-demand"}
    api.act(volume, {"os-retype": retype})
    until(lambda: api.status(volume) != "retyping")
    assert api.shown(volume)["volume_type"] == kind
    assert _names(other_group) >= {f"volume-{volume}"}
    row = api.attach(volume, host("reader"), "ro")
    with host("reader").login(row["connection_info"]) as session:
        assert session.read(0) == block("migrates")
    assert f"volume-{volume}" not in _names(node.group)


def test_deleted_volume_is_wiped_after_the_answer_and_after_a_kill(
    daemon: MakeDaemon,
) -> None:
    node = daemon(backend={**_THICK, "wipe_rate": 64, "wipe_step": 16}).start()
    volume = node.api.volume()
    node.api.delete_volume(volume)
    until(lambda: 0 < _wipe(node.api)["percent"] < 100)
    assert node.process
    node.process.kill()
    (name,) = (each for each in _names(node.group) if each.startswith("deleted-"))

    text = node.config.read_text().replace("wipe_rate = 64", "wipe_rate = 0")
    node.config.write_text(text.replace("wipe_step = 16", "wipe_step = 1024"))
    node.start()
    until(lambda: name not in _names(node.group))
    assert node.api.must("GET", "/v3/lunshare/wipes")["wipes"] == []


def _wipe(api: Api) -> dict[str, int]:
    """The progress of the only wipe."""
    (found,) = api.must("GET", "/v3/lunshare/wipes")["wipes"]
    assert found["size"] == GIB
    return dict(found)


def _names(group: str) -> set[str]:
    """The logical volumes of a group."""
    return set(run("lvs", "--noheadings", "-o", "lv_name", group).split())
