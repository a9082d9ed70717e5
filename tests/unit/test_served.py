# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The helper does not touch what helper.conf does not name."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers import errors
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import export_paths
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper import config_file
from lunshare.helper.served import Served
from tests.unit.helper_process import HelperProcess

ID = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
NAME = f"volume-{ID}"
ROOT = Path(__file__).parents[2]
POINT = "0" * 32
SECRET = b"root's own" * 1000


@pytest.fixture
def process(tmp_path: Path) -> Iterator[HelperProcess]:
    """The helper with the filters of the tree, over programs that do nothing."""
    made = HelperProcess(tmp_path, programs="lvs vgs lvrename lvremove mount umount")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helper]:
    process = HelperProcess(tmp_path_factory.mktemp("helper"), "lvs lvrename mount")
    process.start("volume_groups = lunshare other*\nnfs_shares = nas:/srv")
    yield process.client()
    process.stop()


def rename(group: str, old: str) -> tuple[str, ...]:
    return ("lvrename", group, old, NAME)


def test_a_command_on_another_volume_group_is_refused(helper: Helper) -> None:
    lvs = shlex.split("lvs --reportformat json --units b --nosuffix -o lv_name")
    for group in ("lunshare", "other", "other-2"):
        helper.run(*lvs, group)
    for group in ("rootvg", "lunshare2", "xlunshare", "othe", "-a", "."):
        with pytest.raises(errors.HelperRefused, match="conf serves"):
            helper.run(*lvs, group)
        with pytest.raises(errors.HelperRefused):
            helper.run(*rename(group, f"{NAME}.new"))


def test_foreign_volume_is_managed_only_when_root_allows_it(
    process: HelperProcess,
) -> None:
    """Renamed to a volume's name, the node's root disk could be read and written."""
    process.start("volume_groups = lunshare")
    client = process.client()
    with pytest.raises(errors.Unsupported, match="manage_foreign_disks = yes in"):
        client.run(*rename("lunshare", "root"))
    client.run(*rename("lunshare", f"unmanaged-{OTHER}"))  # it was ours
    process.stop()
    process.start("volume_groups = lunshare\nmanage_foreign_disks = yes")
    client = process.client()
    client.run(*rename("lunshare", "root"))
    for group, old in (("rootvg", "root"), ("lunshare", f"volume-{OTHER}")):
        with pytest.raises(errors.HelperRefused):
            client.run(*rename(group, old))


def test_only_served_shares_are_mounted_at_their_mount_points(helper: Helper) -> None:
    always, point = "nosuid,nodev,noexec,nosymfollow", f"/run/lunshare/mnt/{POINT}"
    for source in ("nas:/srv", "nas:/srv/below", "nas:/srv/a b"):
        helper.run("mount", "-t", "nfs", "-o", always, source, point)
    refused = [(f"nas:/srv{more}", point) for more in ("2", "/../etc", "/..", "/a/.")]
    refused += [("evil:/srv", point), ("nas:/srv", f"/run/lunshare/mnt2/{POINT}")]
    refused += [("nas:/srv", f"/run/lunshare/mnt/x/{POINT}"), ("nas:/srv\n", point)]
    for source, where in refused:
        with pytest.raises(errors.HelperRefused):
            helper.run("mount", "-t", "nfs", "-o", always, source, where)


def test_a_file_outside_every_share_is_not_copied(
    process: HelperProcess, tmp_path: Path
) -> None:
    """A root-owned 0600 file that is named like a volume was read and overwritten."""
    base = tmp_path / "mnt"
    process.start(f"nfs_mount_point_base = {base}")
    places = [tmp_path, base / POINT, base / "x" / POINT]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        for name, data in ((NAME, SECRET), (f"volume-{OTHER}", bytes(16384))):
            (place / name).write_bytes(data)
            (place / name).chmod(0o600)
    for place in places:
        files = [_file(place, ID), _file(place, OTHER)]
        for source, target in (files, reversed(files)):
            with pytest.raises(errors.TargetFailed):
                process.client().call("disk.copy", source=source, target=target)
        assert (place / NAME).read_bytes() == SECRET
        assert (place / f"volume-{OTHER}").read_bytes() == bytes(16384)


def _file(place: Path, identity: str) -> dict[str, Any]:
    path = f"{place}/volume-{identity}"
    return {"volume_id": identity, "path": path, "size": 16384, "kind": "file"}


@pytest.mark.parametrize(
    "path",
    [
        f"/dev/rootvg/{NAME}",
        f"/dev/lunshare2/{NAME}",
        f"/dev/mapper/rootvg-{export_paths.double_hyphens(NAME)}",
        # the logical volume x-volume-ID of the group lunshare, and of x
        f"/dev/mapper/lunshare-x--{export_paths.double_hyphens(NAME)}",
        f"/dev/mapper/x-lunshare-{export_paths.double_hyphens(NAME)}",
        f"/dev/mapper/lunshare-{NAME}",
        f"/dev/shm/{NAME}",
        f"/dev/../lunshare/{NAME}",
    ],
)
def test_a_disk_of_another_group_is_neither_exported_nor_copied(
    helper: Helper, path: str
) -> None:
    host = {
        "initiator": "iqn.1994-05.com.example:host1",
        "mode": "rw",
        "attachment_id": "a",
        "auth": None,
    }
    asked: dict[str, Any] = {"portals": [], "only": None, "connectors": [host]}
    asked["reservations"] = False
    disk = {"path": path, "size": 8, "kind": "block"}
    with pytest.raises(
        errors.TargetFailed, match=r"volume_groups|is /dev/GROUP|is absolute"
    ):
        helper.call("lio.apply", volume_id=ID, disk=disk, **asked)
    own = f"/dev/lunshare/volume-{OTHER}"
    disks = [
        {"volume_id": ID, "path": path, "size": 8, "kind": "block"},
        {"volume_id": OTHER, "path": own, "size": 8, "kind": "block"},
    ]
    for source, target in (disks, disks[::-1]):
        with pytest.raises(
            errors.TargetFailed, match=r"volume_groups|is /dev/GROUP|is absolute"
        ):
            helper.call("disk.copy", source=source, target=target)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"/dev/lunshare/{NAME}", DiskKind.BLOCK),
        (f"/dev/mapper/lunshare-{export_paths.double_hyphens(NAME)}", DiskKind.BLOCK),
        (f"/dev/mapper/lun--share-{export_paths.double_hyphens(NAME)}", DiskKind.BLOCK),
        (f"/run/lunshare/mnt/{POINT}/{NAME}", DiskKind.FILE),
        (f"/srv/pool/{NAME}", DiskKind.FILE),
        (f"/srv/pool/below/{NAME}", DiskKind.FILE),
    ],
)
def test_disk_in_a_named_group_or_directory_is_served(
    path: str, kind: DiskKind
) -> None:
    named = Served(groups=("lunshare", "lun-*"), directories=("/srv/pool",))
    disk = Disk(ID, path, 8, kind)
    assert named.need_disk(disk) is disk
    with pytest.raises(errors.TargetFailed):
        Served(base="/x").need_disk(disk)


# the file


def test_sample_file_has_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "helper.conf"
    shutil.copyfile(ROOT / "etc" / "helper.conf.sample", file)
    file.chmod(0o644)
    wanted = Served("iqn.2026-11.io.lunshare:", ("lunshare",))
    assert config_file.read(str(file)) == wanted
    assert not wanted.manage


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[helper]\nvolume_groups = a/b", "volume_groups 'a/b'"),
        ("[helper]\nvolume_groups = *", r"volume_groups '\*'"),
        ("[helper]\nvolume_groups = shm", "volume_groups 'shm'"),
        ("[helper]\nvolume_group = a", "volume_group: unknown option; known are vol"),
        ("[helper]\ntarget_prefix = naa.1", "target_prefix 'naa.1'"),
        ("[helper]\nnfs_mount_point_base = /run/../x", "absolute path without"),
        ("[helper]\nnfs_shares = nas", "nfs_shares 'nas'"),
        ("[helper]\nnfs_shares = nas:/a/../b", "nfs_shares 'nas:/a/../b'"),
        ("[helper]\ndirectories = /", "directories '/'"),
        ("[helper]\nmanage_foreign_disks = 1", "manage_foreign_disks '1': give yes"),
        ("[helper]\ntake_over_cinder_targets = on", "targets 'on': give yes or no"),
        ("[others]\na = 1", r"\[others\]"),
        ("volume_groups = a", "no section headers"),
    ],
)
def test_mistake_in_the_file_is_one_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "helper.conf"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(errors.Misconfigured, match=said):
        config_file.read(str(file))


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "helper.conf"
    with pytest.raises(errors.Misconfigured, match="run systemd/install"):
        config_file.read(str(file))
    file.write_text("[helper]\n")
    file.chmod(0o664)
    with pytest.raises(
        errors.Misconfigured, match="can be changed by users other than root"
    ):
        config_file.read(str(file))
