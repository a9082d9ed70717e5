# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""rootwrap.d allows the commands of the drivers, and no others.

The rules are matched as in the root helper, with oslo.rootwrap's matcher.
"""

from __future__ import annotations

import inspect
import shlex
from typing import Any

import pytest

from lunshare.drivers.errors import HelperRefused
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.nfs.mount_commands import MountCommands
from lunshare.drivers.share_options import FLAGS, VALUED, Share
from lunshare.helper.commands import Commands
from lunshare.helper.served import Served
from tests.unit import filter_rules

UUID = "11111111-2222-4333-8444-555555555555"
NAME = f"volume-{UUID}"
OTHER = "11111111-2222-4333-8444-666666666666"
SNAPSHOT, DELETED = f"_snapshot-{OTHER}", f"deleted-{OTHER}.8388608"
TAG = f"lunshare:{'0af1' * 8}:storage-1.example"
J = "--reportformat json --units b --nosuffix"
REPORT = """{"report": [{"vg": [{"vg_size": "8", "vg_free": "4", "vg_extent_size": "4",
 "vg_tags": "", "pv_name": "/dev/sda", "pv_mda_used_count": "1",
 "vg_missing_pv_count": "0"}],
 "lv": [], "seg": []}]}"""
AROUND = f'lv_name=~"^{NAME}" || origin="{NAME}"'
DD = "if={} of={} bs=1M iflag=direct oflag=direct conv=nocreat,notrunc,fsync"

# How the drivers call each method of Lvm; a new method needs a line here.
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("volume_group", ()),
    ("thin_pool", ("lunshare-pool",)),
    ("logical_volumes", ()),
    ("partial_volumes", ()),
    ("details", ()),
    ("details_of", (NAME,)),
    ("details_of", (NAME, SNAPSHOT)),
    ("segments", (f"{NAME}.tail",)),
    ("create_thick", (f"{NAME}.new", 8 << 20)),
    ("create_thick", (f"{NAME}.tail", 8 << 20)),
    ("create_thin", (NAME, (8 << 20) + 1, "lunshare-pool")),
    ("snapshot_thick", (SNAPSHOT, NAME, 8 << 20)),
    ("snapshot_thin", (SNAPSHOT, NAME, True)),
    ("snapshot_thin", (NAME, SNAPSHOT, False)),
    ("snapshot_thin", (f"{NAME}.revert", SNAPSHOT, False)),
    ("snapshot_thin", (NAME, f"volume-{OTHER}", False)),
    ("remove", (NAME,)),
    ("remove", (f"{NAME}.new",)),
    ("remove", (f"{NAME}.tail",)),
    ("remove", (f"{NAME}.revert",)),
    ("remove", (SNAPSHOT,)),
    ("remove", (DELETED,)),
    ("remove_matching", ("lunshare-pool", NAME, f"{NAME}.revert")),
    ("remove_matching", ("", SNAPSHOT)),
    ("rename", (f"{NAME}.new", NAME)),
    ("rename", (f"{NAME}.revert", NAME)),
    ("rename", (NAME, DELETED)),
    ("rename", (NAME, f"unmanaged-{UUID}")),
    ("rename", ("somebody.s_data-1", NAME)),
    ("rename", (f"unmanaged-{UUID}", NAME)),
    ("rename", (SNAPSHOT, f"unmanaged-{UUID}")),
    ("rename", ("somebody.s_data-1", SNAPSHOT)),
    ("rename", (f"unmanaged-{UUID}", SNAPSHOT)),
    ("rename", (f"{NAME}-before", NAME)),
    ("extend", (NAME, 8 << 20)),
    ("extend", (NAME, 8 << 20, "/dev/mapper/mpath-a_1:0-24")),
    ("reduce", (DELETED, 4 << 20)),
    ("activate", (NAME,)),
    ("activate", (SNAPSHOT,)),
    ("activate", (DELETED,)),
    ("activate_all", ()),
    ("activate_pool", ("lunshare-pool",)),
    ("deactivate", (NAME,)),
    ("refresh", (NAME,)),
    ("refresh", (f"{NAME}.tail",)),
    ("refresh", (SNAPSHOT,)),
    ("refresh", (DELETED,)),
    ("add_tag", (NAME, f"revert-{OTHER}")),
    ("delete_tag", (NAME, f"revert-{OTHER}")),
    ("tag_group", (TAG,)),
    ("merge", (SNAPSHOT,)),
    ("merge_progress", (NAME,)),
]

ALWAYS = "nosuid,nodev,noexec,nosymfollow"
POINT = f"/run/lunshare/mnt/{'0' * 32}"

# How the NFS driver calls each method of MountCommands, on each of SHARES.
MOUNTING = ("create_mount_point", "mount", "unmount")
SHARES = [
    Share("nas.example.com", "/srv/a"),
    Share("192.0.2.1", "/", "vers=4.2,hard,proto=tcp6,sec=krb5p,timeo=600"),
    Share("[2001:db8::1]", "/with blank,comma;and -o more", "nconnect=4"),
]

REFUSED = [
    f"lvremove --config backup/archive=0 --yes lunshare/{NAME}",
    f"lvremove --config backup/archive=0,global/etc=1 --yes lunshare/{NAME}",
    f"lvremove --config a/b=0 --config a/b=0 --yes lunshare/{NAME}",
    f"lvs --config backup/archive=0 {J} -o lv_name lunshare",
    "sh -c id",
    "privsep-helper --privsep_context os_brick.privileged.default",
    "lvm lvs",
    # volumes that are not ours
    "lvremove --yes lunshare/root",
    "lvremove --yes lunshare",
    "lvremove --yes lunshare/volume-of-another-owner",
    f"lvremove --yes lunshare/{NAME}.old",
    f"lvremove --yes lunshare/x{NAME}",
    f"lvremove --yes lunshare/{NAME} lunshare/root",
    f"lvremove --yes --force lunshare/{NAME}",
    "lvcreate --yes -n root -L 8388608b lunshare",
    f"lvcreate --yes --thin --virtualsize 8b -n {NAME}.new lunshare/pool",
    "lvextend -L 8388608b lunshare/root",
    f"lvextend -L +8388608b lunshare/{NAME}",
    f"lvextend -L 8g lunshare/{NAME}",
    f"lvreduce -L 8388608b lunshare/{NAME}",
    f"lvreduce --yes --force -L 8388608b lunshare/{NAME}",
    f"lvreduce --yes --force -L -8388608b lunshare/{DELETED}",
    "lvreduce --yes --force -L 8388608b lunshare/root",
    f"lvreduce --yes --force --resizefs -L 8388608b lunshare/{DELETED}",
    # nothing of ours takes the name of another of ours
    f"lvrename lunshare volume-{OTHER} {NAME}",
    f"lvrename lunshare volume-{OTHER}.new.new {NAME}.new",
    f"lvrename lunshare volume-{OTHER}.tail {NAME}",
    f"lvrename lunshare {SNAPSHOT} {NAME}",
    f"lvrename lunshare {DELETED} {NAME}",
    f"lvrename lunshare {NAME} {SNAPSHOT}",
    f"lvrename lunshare {SNAPSHOT} unmanaged-{UUID}.new",
    f"lvrename lunshare {DELETED} {SNAPSHOT}",
    f"lvrename lunshare {NAME}.new {SNAPSHOT}",
    "lvrename lunshare root _snapshot-root",
    f"lvrename lunshare {NAME} unmanaged",
    f"lvrename lunshare {NAME} deleted-{OTHER}",
    "lvrename lunshare root unmanaged-root",
    f"lvrename lunshare root {DELETED}",
    f"lvrename lunshare /dev/lunshare/root {NAME}",
    f"lvrename lunshare -d {NAME}",
    f"lvrename lunshare/root {NAME}",
    # snapshots of what is not ours, or under names that are not
    f"lvcreate --yes --snapshot -ky -n {SNAPSHOT} lunshare/root",
    f"lvcreate --yes --snapshot -ky -n root lunshare/{NAME}",
    f"lvcreate --yes --snapshot -kn -n {NAME} lunshare/root",
    f"lvcreate --yes --snapshot -kn -n {NAME}.revert lunshare/volume-{OTHER}",
    f"lvcreate --yes --snapshot -kn -n {SNAPSHOT} lunshare/{NAME}",
    f"lvcreate --yes --snapshot -n {SNAPSHOT} -l 100%ORIGIN lunshare/{NAME}",
    f"lvcreate --yes --snapshot -n {SNAPSHOT} -L 8388608b lunshare/root",
    f"lvcreate --yes --snapshot -n root -L 8388608b lunshare/{NAME}",
    f"lvconvert --yes --background --interval 1 --mergesnapshot lunshare/{NAME}",
    "lvconvert --yes --background --interval 1 --mergesnapshot lunshare/root",
    f"lvconvert --yes --splitsnapshot lunshare/{SNAPSHOT}",
    f"lvremove --yes lunshare/{SNAPSHOT}.new",
    f"lvremove --yes lunshare/deleted-{OTHER}",
    "lvremove --yes lunshare/_snapshot-of-another-owner",
    'lvremove --yes --select lv_name="root" lunshare',
    f"lvremove --yes --select 'lv_name=\"{NAME}\"' lunshare",
    f'lvremove --yes --select \'lv_name="{NAME}" || lv_name="root"\' lunshare',
    f"lvremove --yes --select '{AROUND}' lunshare",
    f'lvremove --yes --select \'pool_lv="p" && (lv_name="{NAME}")\' lunshare',
    f'lvremove --yes --select \'pool_lv="p" || (lv_name="{SNAPSHOT}")\' lunshare',
    'lvremove --yes --select \'pool_lv="" && (lv_name="root")\' lunshare',
    f'lvremove --yes --select \'pool_lv="" || vg_free>0 && (lv_name="{SNAPSHOT}")\' x',
    f"lvs {J} -o lv_name --select '{AROUND} || lv_name=\"root\"' lunshare",
    # what is written on groups and volumes
    "vgchange --addtag somebody lunshare",
    f"vgchange --deltag {TAG} lunshare",
    f"vgchange --addtag {TAG} --activate n lunshare",
    "vgchange -an lunshare",
    f"lvchange --addtag somebody lunshare/{NAME}",
    f"lvchange --addtag revert-{OTHER} lunshare/root",
    f"lvchange --deltag revert-{OTHER} lunshare/root",
    f"lvrename lunshare {NAME}.new root",
    f"lvrename lunshare {NAME} {NAME}.new",
    "lvchange -ay -K lunshare/root",
    "lvchange -an lunshare/root",
    "lvchange --refresh lunshare/root",
    "lvchange --refresh lunshare",
    "lvchange -an lunshare",
    f"lvchange -an lunshare/{SNAPSHOT}",
    "lvchange -ay -K --select lv_name=~. lunshare",
    "lvchange -ay -K --select vg_free>0 lunshare",
    'lvchange -ay --select \'segtype="thin-pool" || lv_name="a"\' lunshare',
    'lvchange -ay --select \'segtype="thin-pool" && lv_name="a" || size>0\' lunshare',
    "lvchange -ay --select 'lv_name=\"root\"' lunshare",
    # devices that are not ours
    "blkdiscard --zeroout /dev/sda",
    "blkdiscard --zeroout /dev/lunshare/root",
    f"blkdiscard --zeroout /dev/../dev/lunshare/{NAME}",
    f"blkdiscard --zeroout /dev/../{NAME}",
    f"blkdiscard --zeroout /etc/{NAME}",
    f"blkdiscard --zeroout /dev/shm/{NAME}",
    f"sync /dev/mqueue/{NAME}",
    f"blkdiscard /dev/lunshare/{NAME}.new",
    f"blkdiscard --zeroout /dev/lunshare/{NAME}.new",
    f"sync /dev/../{NAME}",
    "sync",
    f"sync /dev/lunshare/{NAME}.new",
    f"blkdiscard --zeroout /dev/lunshare/{NAME}",
    f"blkdiscard --zeroout --offset 0 /dev/lunshare/{NAME}",
    f"blkdiscard --zeroout --offset 0 /dev/lunshare/{SNAPSHOT}",
    f"blkdiscard --zeroout --length 8 /dev/lunshare/{NAME}.new",
    f"blkdiscard --zeroout --offset 0 /dev/shm/{DELETED}",
    f"blkdiscard --zeroout --offset=0 /dev/lunshare/{DELETED}",
    f"blkdiscard --zeroout --offset 0 --length 8 /dev/lunshare/{DELETED}",
    f"sync /dev/lunshare/{NAME}",
    f"dd if=/dev/zero of=/dev/lunshare/{NAME}",
    f"dd {DD.format('/dev/zero', f'/dev/lunshare/{NAME}.new')}",
    f"dd {DD.format(f'/dev/lunshare/{SNAPSHOT}', f'/dev/lunshare/{NAME}.new')}",
    f"dd {DD.format(f'/dev/lunshare/{SNAPSHOT}', f'/dev/lunshare/{NAME}')}",
    f"dd {DD.format(f'/dev/lunshare/{SNAPSHOT}', '/dev/sda')}",
    f"dd {DD.format('/dev/lunshare/root', f'/dev/lunshare/{NAME}')}",
    f"dd {DD.format(f'/dev/lunshare/{NAME}', '/dev/lunshare/root')}",
    f"dd {DD.format(f'/dev/shm/{NAME}', f'/dev/lunshare/{NAME}')}",
    f"dd {DD.format(f'/dev/lunshare/{NAME}', f'/dev/mqueue/{NAME}')}",
    f"dd {DD.format(f'/dev/lunshare/volume-{OTHER}', f'/dev/lunshare/{NAME}.new')}",
    f"dd {DD.format(f'/dev/lunshare/{SNAPSHOT}', f'/dev/shm/{NAME}.new')}",
    f"dd {DD.format(f'/dev/shm/{SNAPSHOT}', f'/dev/lunshare/{NAME}.new')}",
    f"dd {DD.format(f'/dev/../{SNAPSHOT}', f'/dev/lunshare/{NAME}.new')}",
    "dmsetup remove --noflush --target thin-pool lunshare-pool",
    "dmsetup status --noflush --target thin-pool lunshare-pool",
    # options where a name belongs
    f"vgs {J} -o vg_size,vg_free --config",
    f"vgs {J} -o vg_size,vg_free -a",
    f"vgs {J} -o vg_size,vg_free lunshare --config x",
    "vgs --config global/x=1 -o vg_size lunshare",
    f"lvs {J} -o lv_name --select lv_name=~. lunshare",
    f"lvcreate --yes -n {NAME} -L 8b --config",
    f"lvextend -L 8388608b lunshare/{NAME} --config",
    # shares: where they are mounted, with what, and what else mount could do
    "mkdir -p -m 0700 /run/lunshare/mnt",
    f"mkdir -p -m 0777 {POINT}",
    f"mkdir -p -m 0700 {POINT} /etc/x",
    f"mkdir -p -m 0700 /run/lunshare/mnt/../{'0' * 32}",
    f"mount -t nfs -o nosuid,nodev,noexec nas:/srv {POINT}",
    f"mount -t nfs -o {ALWAYS} nas:/srv /etc",
    f"mount -t nfs -o {ALWAYS} nas:/srv /var/lib/lunshare/mnt/{'0' * 32}",
    f"mount -t nfs -o {ALWAYS} nas:/srv /run/lunshare/mnt/{'0' * 31}g",
    f"mount -t nfs -o {ALWAYS} nas:/srv {POINT}/x",
    f"mount -t nfs -o {ALWAYS} /dev/sda {POINT}",
    f"mount -t nfs -o {ALWAYS} -oexec:/srv {POINT}",
    f"mount -t nfs -o {ALWAYS} --bind:/srv {POINT}",
    f"mount -t ext4 -o {ALWAYS} nas:/srv {POINT}",
    f"mount -t nfs -o vers=4.2 nas:/srv {POINT}",
    f"mount -t nfs nas:/srv {POINT}",
    f"mount --bind nas:/srv {POINT}",
    f"mount -t nfs -o {ALWAYS},exec nas:/srv {POINT}",
    f"mount -t nfs -o suid,{ALWAYS} nas:/srv {POINT}",
    f"mount -t nfs -o bind,{ALWAYS} nas:/srv {POINT}",
    f"mount -t nfs -o remount,{ALWAYS} nas:/srv {POINT}",
    f"mount -t nfs -o vers=3,mounthost=evil,{ALWAYS} nas:/srv {POINT}",
    f"mount -t nfs -o X-mount.owner=lunshare,{ALWAYS} nas:/srv {POINT}",
    f"mount -t nfs -o vers=4.2 -o exec -o {ALWAYS} nas:/srv {POINT}",
    "umount /",
    f"umount -l {POINT}",
    f"umount {POINT} /",
    f"nsenter --mount=/proc/1/ns/mnt mount -t nfs -o {ALWAYS} nas:/srv {POINT}",
    # more than the pattern, after it
    f"lvremove --yes 'lunshare/{NAME}\n'",
    f"lvremove --yes 'lunshare/{NAME}\nlunshare/root'",
    f"/tmp/lvremove --yes lunshare/{NAME}",
]


SERVED = Served(
    groups=("lunshare", "lun-share.1", "other-*"),
    shares=("nas:/srv", "nas.example.com:/srv/a", "192.0.2.1:/", "[2001:db8::1]:/"),
    manage=True,
)


@pytest.fixture(scope="module")
def served() -> Served:
    return SERVED


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory, served: Served) -> Commands:
    return filter_rules.load(tmp_path_factory.mktemp("filters") / "bin", served)


class Asking:
    """A root helper that only checks the filters and runs nothing."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.allowed: list[list[str]] = []

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.allowed.append(self._commands.command(argv))
        return REPORT

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        raise HelperRefused(verb, "LVM needs no typed verb")


@pytest.mark.parametrize(("method", "arguments"), CALLS)
def test_commands_of_the_lvm_driver_are_allowed(commands, method, arguments):
    root = Asking(commands)
    getattr(Lvm(root, "lun-share.1", 60), method)(*arguments)
    assert root.allowed


@pytest.mark.parametrize("method", MOUNTING)
@pytest.mark.parametrize("share", SHARES)
def test_commands_of_the_nfs_driver_are_allowed(commands, method, share):
    root = Asking(commands)
    getattr(MountCommands(root, "/run/lunshare/mnt", 60), method)(share)
    assert root.allowed


@pytest.mark.parametrize(
    "option", [*FLAGS.split("|"), *(f"{name}=4.x_1-2:3" for name in VALUED.split("|"))]
)
def test_every_mount_option_of_a_share_is_allowed(commands, option):
    root = Asking(commands)
    MountCommands(root, "/run/lunshare/mnt", 60).mount(Share("nas", "/srv", option))
    assert root.allowed


# What is no command, but a verb of its own, or no call at all.
_VERBS = {"path", "metadata_commit", "pool_usage", "mapped", "copy", "wipe"}


def test_every_command_of_the_drivers_is_tested():
    assert _methods(Lvm) - _VERBS == {method for method, _ in CALLS}
    assert _methods(MountCommands) == set(MOUNTING)


def _methods(kind: type) -> set[str]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, _ in found if not name.startswith("_")}


def test_size_is_rounded_up_to_a_sector(commands):
    root = Asking(commands)
    Lvm(root, "lunshare", 60).create_thick(f"{NAME}.new", 8193)
    assert "8704b" in root.allowed[0]


@pytest.mark.parametrize("line", REFUSED)
def test_other_commands_are_refused(commands, line):
    with pytest.raises(HelperRefused):
        commands.command(shlex.split(line))


def test_refused_commands_differ_little_from_an_allowed_one(commands):
    assert commands.command(shlex.split(f"lvremove --yes lunshare/{NAME}"))
