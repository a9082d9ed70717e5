# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: a start that fails in part, and the stats after it.

Cinder's database is in memory here, so that a row can be deleted or moved in between.
Prints what each case has found.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cinder import exception, objects
from cinder.common import config  # noqa: F401 - registers Cinder's options
from cinder.volume import configuration
from oslo_config import cfg

objects.register_all()

from cinder.volume import manager  # noqa: E402 - they need the objects

from lunshare.cinder.assembled import Assembled  # noqa: E402
from lunshare.cinder.host_connections import HostConnections  # noqa: E402
from lunshare.cinder.wanted_access import VolumeHosts  # noqa: E402
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed  # noqa: E402
from lunshare.drivers.fake import fake_storage  # noqa: E402
from lunshare.drivers.fake.fake_driver import FakeVolumes  # noqa: E402
from lunshare.drivers.targets.fake import FakeTarget  # noqa: E402
from lunshare.drivers.values import Connector, Mode, Volume  # noqa: E402

ID = "0a1b2c3d-0000-4000-8000-00000000000"
HOST = "node@ours"
NAME = "iqn.1994-05.com.example:one"


@dataclass
class CinderVolume:
    """What the driver reads of Cinder's volume."""

    id: str
    status: str = "available"
    host: str = f"{HOST}#ours"
    size: int = 1
    admin_metadata: dict[str, str] = field(default_factory=dict)
    volume_type: None = None

    @property
    def name_id(self) -> str:
        return self.id


class Rows:
    """Volumes that no host has."""

    def __init__(self, *volumes: CinderVolume) -> None:
        self.known = {each.id: each for each in volumes}

    def of_volume(self, volume: Any) -> VolumeHosts:
        if volume.id not in self.known:
            raise exception.VolumeNotFound(volume_id=volume.id)
        return VolumeHosts(volume.id, None)

    def read_again(self, volumes: Iterable[Any]) -> list[CinderVolume]:
        return [self.known[each.id] for each in volumes if each.id in self.known]

    def on_node(self, volume_ids: Iterable[str], _node: str) -> set[str]:
        return {each for each in volume_ids if each in self.known}


def assembled(rows: Rows) -> Assembled:
    """A backend on the fake drivers; each volume still has an export from before."""
    fake_storage.reset()
    section = configuration.Configuration(
        manager.volume_backend_opts, config_group="ours"
    )
    names = {"pool_name": "ours", "volume_backend_name": "ours"}
    made = Assembled(cfg.CONF, section, None, lambda: names)
    made.check()
    made._rows = rows  # type: ignore[assignment]
    made.connections = HostConnections(made.backend, rows)  # type: ignore[arg-type]
    for each in rows.known.values():
        wanted = Volume(each.id, 1024**3)
        made.backend.create(wanted)
        made.backend.apply(wanted, [Connector(NAME, Mode.RW, "left")])
    return made


def _target(made: Assembled) -> FakeTarget:
    found = made.backend.target
    assert isinstance(found, FakeTarget)
    return found


def live(made: Assembled) -> list[str]:
    return sorted(each.volume_id[-1] for each in made.backend.target.observe())


def changed(what: str) -> dict[str, Any]:
    """A volume could not be started, and is deleted or migrated before the retry."""
    one, two = CinderVolume(f"{ID}1"), CinderVolume(f"{ID}2")
    rows = Rows(one, two)
    made = assembled(rows)
    with _target(made).failures.fail("remove.before", TargetFailed(ID, "busy")):
        made.start_volumes([one, two], HOST)
    if what == "deleted":
        del rows.known[one.id]
    else:
        one.host = "node@theirs#theirs"
    return answered(made)


def unlisted() -> dict[str, Any]:
    """The target does not list its exports at the start."""
    one = CinderVolume(f"{ID}3")
    made = assembled(Rows(one))
    failed = DeadlineExceeded("reading every target", 30)
    with _target(made).failures.fail("observe", failed):
        try:
            made.start_volumes([one], HOST)
        except DeadlineExceeded as error:
            return {"error": str(error)}
    return answered(made)


class PartLost(FakeVolumes):
    """A part of its pool is lost."""

    def lost(self, volume_id: str) -> str:
        return "the share of that disk is lost"


def lost() -> dict[str, Any]:
    """A volume could not be started; its disk is on a part that is lost for a time."""
    one = CinderVolume(f"{ID}4")
    made = assembled(Rows(one))
    with _target(made).failures.fail("remove.before", TargetFailed(ID, "busy")):
        made.start_volumes([one], HOST)
    made.backend.volumes.__class__ = PartLost
    found = answered(made)
    made.backend.volumes.__class__ = FakeVolumes
    return {**found, "then": answered(made)["live"]}


def answered(made: Assembled) -> dict[str, Any]:
    try:
        state = made.read_stats()["pools"][0]["backend_state"]
    except Exception as error:
        state = f"{type(error).__name__}: {error}"
    return {"stats": state, "live": live(made)}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "cinder.conf")
        file.write_text(
            "[ours]\nvolume_driver = lunshare.cinder.LunshareDriver\n"
            "lunshare_storage = fake\nlunshare_target = fake\n"
        )
        cfg.CONF(["--config-file", str(file)], project="cinder")
        found = {
            "deleted": changed("deleted"),
            "migrated": changed("migrated"),
            "unlisted": unlisted(),
            "lost": lost(),
        }
    print(json.dumps(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
