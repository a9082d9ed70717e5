# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``target_driver = nfs``: connection_info, and refusals because it cannot fence."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import (
    InvalidValue,
    Misconfigured,
    TargetFailed,
    Unsupported,
)
from lunshare.drivers.share_options import Share
from lunshare.drivers.targets.nfs import NfsTarget
from lunshare.drivers.values import Connector, Disk, DiskKind, Export, Mode, Volume

SHARE = Share("nas.example.com", "/srv/with blank", "vers=4.2,hard")
VOLUME = Volume(str(uuid.uuid4()), 1024**3)
BASE = "/run/lunshare/mnt"
DISK = Disk(VOLUME.id, f"{SHARE.point(BASE)}/{VOLUME.name}", VOLUME.size, DiskKind.FILE)


def connector(mode: Mode, host: str = "host1") -> Connector:
    return Connector(f"iqn.1994-05.com.example:{host}", mode, f"attachment-{host}")


@pytest.fixture
def target() -> NfsTarget:
    """It never calls the root helper: hosts mount the share themselves."""
    named = {"nas_host": SHARE.host, "nas_share_path": SHARE.path}
    options = defaults(NfsTarget, **named, nas_mount_options=SHARE.options)
    target = NfsTarget("nfs", options, NoRoot())
    target.check()
    return target


def test_connection_info_names_share_and_file(target: NfsTarget) -> None:
    host = connector(Mode.RW)
    assert target.apply(Export(VOLUME.id, DISK, (host,)), {host.initiator}) == ()
    assert target.connection_info(VOLUME, host) == {
        "driver_volume_type": "nfs",
        "export": "nas.example.com:/srv/with blank",
        "name": VOLUME.name,
        "options": "-o vers=4.2,hard",
        "format": "raw",
        "mount_point_base": BASE,
        "volume_id": VOLUME.id,
    }


def test_format_is_always_raw(target: NfsTarget) -> None:
    """A host that detects the format would trust a header that a guest wrote."""
    host = connector(Mode.RW)
    target.apply(Export(VOLUME.id, DISK, (host,)))
    assert target.connection_info(VOLUME, host)["format"] == "raw"


@pytest.mark.parametrize("only", [None, {"iqn.1994-05.com.example:host2"}])
def test_read_only_is_refused_and_not_granted_as_read_write(
    target: NfsTarget, only
) -> None:
    hosts = (connector(Mode.RW), connector(Mode.RO, "host2"))
    with pytest.raises(Unsupported, match=r"ro for .*host2 by NFS") as raised:
        target.apply(Export(VOLUME.id, DISK, hosts), only)
    assert "target_driver = lio" in raised.value.remedy
    with pytest.raises(TargetFailed):
        target.connection_info(VOLUME, hosts[1])


def test_apply_and_remove_change_nothing(target: NfsTarget) -> None:
    """It cannot fence, so it reports no change and no live export."""
    hosts = (connector(Mode.RW), connector(Mode.RW, "host2"))
    assert target.apply(Export(VOLUME.id, DISK, hosts)) == ()
    assert target.observe() == ()
    assert target.apply(Export(VOLUME.id), {hosts[0].initiator}) == ()
    assert target.remove(VOLUME.id) == target.remove(VOLUME.id) == ()
    with pytest.raises(InvalidValue):
        target.remove("../other")
    assert target.PROTOCOL == "NFS"


def test_disk_that_is_not_on_a_share_is_refused(target: NfsTarget) -> None:
    stray = dataclasses.replace(DISK, path=f"/dev/lunshare/{VOLUME.name}")
    with pytest.raises(TargetFailed, match="is not on a share of nfs"):
        target.apply(Export(VOLUME.id, stray, (connector(Mode.RW),)))


def test_check_refuses_a_backend_without_shares() -> None:
    with pytest.raises(Misconfigured, match="no NFS share"):
        NfsTarget("nfs", defaults(NfsTarget), NoRoot()).check()
