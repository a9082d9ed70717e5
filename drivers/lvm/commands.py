# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every command the LVM driver runs as root; ``saying`` tells what failures mean.

Each shape has its line in rootwrap.d/lvm.filters, in the same order; a test
holds the two together. Sizes are bytes; LVM rounds them up to whole extents.
"""

from __future__ import annotations

from lunshare.drivers.base import Root
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded, HelperUnreachable
from lunshare.drivers.lvm import report, sysfs

_JSON = ("--reportformat", "json", "--units", "b", "--nosuffix")

# LVM keeps the metadata before each change in /etc/lvm/archive, for 30 days, and looks
# at each of those files before it adds one (lvm2 2.03.16): with 1,700 of them
# lvremove took 1.1 s instead of 0.6 in the lab. What it keeps after each change, in
# /etc/lvm/backup, is what a lost group is restored from.
_NO_ARCHIVE = ("--config", "backup/archive=0")

# What we name "volume-<uuid>". LVM's own expressions have no {n}, so this is
# as near as they come; replies are read with the exact form.
_HEX = "[0-9a-f]+"
_OURS = f'lv_name=~"^volume-{_HEX}-{_HEX}-{_HEX}-{_HEX}-{_HEX}$"'

_LOOKED = (
    "lv_name,lv_size,pool_lv,origin,lv_tags,lv_layout,lv_role,lv_permissions"
    ",lv_device_open,lv_snapshot_invalid,lv_merging"
)


class Lvm:
    """The commands on one volume group. All raise what ``Root.run`` raises.

    ``timeout`` is for each of them, ``patience`` the seconds in which work on bytes
    may come no further.
    """

    def __init__(
        self, root: Root, group: str, timeout: float, patience: float = 120.0
    ) -> None:
        self._root, self.name, self._timeout = root, group, timeout
        self.patience = patience
        #: Whether a change may have died half-way, and left a device suspended.
        self.doubt = True

    # Questions

    def group(self) -> report.VolumeGroup:
        """How large the volume group is, what is free, its tags, a disk of it."""
        fields = "vg_size,vg_free,vg_extent_size,vg_tags"
        disks = "pv_name,pv_mda_used_count"
        text = self._run("vgs", *_JSON, "-o", f"{fields},{disks}", self.name)
        return report.volume_group(text)

    def commit(self, device: str) -> list[int] | None:
        """What tells one commit of the metadata on a disk from every other.

        No process is started, and no more is read than the disk's headers.
        """
        found = self._root.call("lvm.commit", timeout=self._timeout, device=device)
        return found if isinstance(found, list) else None

    def pool(self, name: str) -> report.Pool | None:
        """The thin pool of that name; None if the name is something else."""
        levels = "data_percent,metadata_percent,lv_health_status"
        fields = f"lv_size,segtype,zero,{levels}"
        text = self._run("lvs", *_JSON, "-o", fields, f"{self.name}/{name}")
        found = report.pools(text)
        return found[0] if found else None

    def levels(self, name: str) -> report.Levels | None:
        """How full an active thin pool is, from the kernel; None of anything else."""
        # Once it has volumes, the pool itself is below a layer of LVM's own.
        for layer in ("-tpool", ""):
            device = sysfs.mapped(self.name, name) + layer
            try:
                argv = ("dmsetup", "status", "--target", "thin-pool", device)
                return report.levels(self._run(*argv))
            except CommandFailed:
                continue
        return None

    def volumes(self) -> tuple[report.LogicalVolume, ...]:
        """Every logical volume of the group. These fields need no ioctl per row."""
        fields = "lv_name,lv_size,pool_lv"
        text = self._run("lvs", *_JSON, "-o", fields, self.name)
        return report.logical_volumes(text)

    def looked(self) -> tuple[report.Looked, ...]:
        """Every logical volume of the group; these fields need ioctls for each row."""
        text = self._run("lvs", *_JSON, "-o", _LOOKED, self.name)
        return report.looked(text)

    def around(self, volume: str, *snapshots: str) -> dict[str, report.Looked]:
        """By name: a volume, its half-made parts and snapshots, and ``snapshots``."""
        words = [f'lv_name=~"^{volume}"', f'origin="{volume}"']
        select = " || ".join(words + [f'lv_name="{name}"' for name in snapshots])
        text = self._run("lvs", *_JSON, "-o", _LOOKED, "--select", select, self.name)
        return {lv.name: lv for lv in report.looked(text)}

    def segments(self, name: str) -> tuple[report.Segment, ...]:
        """On which extents of which physical volumes it lies."""
        fields = "seg_size,seg_pe_ranges"
        text = self._run(
            "lvs", *_JSON, "--segments", "-o", fields, f"{self.name}/{name}"
        )
        return report.segments(text)

    # Changes

    def create_thick(self, name: str, size: int) -> None:
        """Make a linear volume; its bytes are whatever the extents held."""
        self._change("lvcreate", "--yes", "-n", name, "-L", _sectors(size), self.name)

    def create_thin(self, name: str, size: int, pool: str) -> None:
        """Make a thin volume; it reads as zeros."""
        where = f"{self.name}/{pool}"
        virtual = ("--thin", "--virtualsize", _sectors(size))
        self._change("lvcreate", "--yes", *virtual, "-n", name, where)

    def snapshot_thick(self, name: str, volume: str, reserve: int) -> None:
        """Keep a thick volume's bytes, with so many bytes for what is overwritten.

        Of a reserve in percent LVM would take less where it has less (lvm2
        2.03.16); of one that is larger than it can use it takes what it can.
        """
        room, where = ("-L", _sectors(reserve)), f"{self.name}/{volume}"
        self._change("lvcreate", "--yes", "--snapshot", "-n", name, *room, where)

    def snapshot_thin(self, name: str, of: str, asleep: bool) -> None:
        """Make a thin volume of another's bytes; ``asleep``: not active after boot."""
        skip, where = "-ky" if asleep else "-kn", f"{self.name}/{of}"
        self._change("lvcreate", "--yes", "--snapshot", skip, "-n", name, where)

    def remove(self, name: str) -> None:
        """Remove one that is not open."""
        self._change("lvremove", "--yes", f"{self.name}/{name}")

    def remove_any(self, pool: str, *names: str) -> None:
        """Remove those of these that are in the pool, or in none; none is success."""
        either = " || ".join(f'lv_name="{name}"' for name in names)
        select = f'pool_lv="{pool}" && ({either})'
        self._change("lvremove", "--yes", "--select", select, self.name)

    def rename(self, old: str, new: str) -> None:
        """Give it another name, in one commit of LVM's metadata, open or not."""
        self._change("lvrename", self.name, old, new)

    def extend(self, name: str, size: int, *extents: str) -> None:
        """Grow it to ``size``, onto these ``extents`` alone if given."""
        where = f"{self.name}/{name}"
        self._change("lvextend", "-L", _sectors(size), where, *extents)

    def reduce(self, name: str, size: int) -> None:
        """Give up what a deleted volume has beyond ``size``."""
        where = f"{self.name}/{name}"
        self._change("lvreduce", "--yes", "--force", "-L", _sectors(size), where)

    def activate(self, name: str) -> None:
        """Make its node appear; ``-K`` also those marked to be skipped."""
        self._change("lvchange", "-ay", "-K", f"{self.name}/{name}")

    def activate_all(self) -> None:
        """Make the nodes of all our volumes appear, in one command."""
        self._change("lvchange", "-ay", "-K", "--select", _OURS, self.name)

    def deactivate(self, name: str) -> None:
        """Take its node away, if nobody has it open; udev's own look is waited for."""
        self._change("lvchange", "-an", f"{self.name}/{name}")

    def refresh(self, name: str) -> None:
        """Load its table anew; what a killed command has suspended goes on."""
        self._change("lvchange", "--refresh", f"{self.name}/{name}")

    def tag(self, name: str, tag: str) -> None:
        """Write on a volume what is being done to it."""
        self._change("lvchange", "--addtag", tag, f"{self.name}/{name}")

    def untag(self, name: str, tag: str) -> None:
        """It is done. A tag that is not there is success."""
        self._change("lvchange", "--deltag", tag, f"{self.name}/{name}")

    def claim(self, tag: str) -> None:
        """Write on the group whose it is."""
        self._change("vgchange", "--addtag", tag, self.name)

    def merge(self, snapshot: str) -> None:
        """Begin to give a thick volume its snapshot's bytes; that is then no more.

        LVM goes on with it by itself, as long as it takes. Where the volume is open,
        it puts it off to the next activation.
        """
        how = ("--yes", "--background", "--interval", "1", "--mergesnapshot")
        self._change("lvconvert", *how, f"{self.name}/{snapshot}")

    def merged(self, name: str) -> str:
        """How far the merge of a volume is: a text that changes as it goes on."""
        fields, where = "lv_merging,data_percent", f"{self.name}/{name}"
        return self._run("lvs", *_JSON, "-o", fields, where)

    def copy(self, source: str, target: str, size: int) -> None:
        """Copy the first bytes of one onto another, to the medium, and prove it."""
        paths = {"source": self.path(source), "target": self.path(target)}
        self._root.call("lvm.copy", timeout=self.patience, **paths, length=size)

    def wipe(self, name: str, start: int = 0, size: int | None = None) -> None:
        """Overwrite so many bytes with zeros, or all to the end, down to the medium."""
        where = {"device": self.path(name), "start": start, "length": size}
        self._root.call("lvm.zero", timeout=self.patience, **where)

    def path(self, name: str) -> str:
        """Where udev puts its node."""
        return f"/dev/{self.name}/{name}"

    def _run(self, *argv: str) -> str:
        return self._root.run(*argv, timeout=self._timeout)

    def _change(self, program: str, *argv: str) -> None:
        try:
            self._run(program, *_NO_ARCHIVE, *argv)
        except CommandFailed as error:
            self.doubt |= error.exit_code < 0  # killed
            raise
        except (DeadlineExceeded, HelperUnreachable):
            self.doubt = True
            raise


def _sectors(size: int) -> str:
    """A size as LVM takes it: it refuses what is no multiple of 512 bytes."""
    return f"{-(-size // 512) * 512}b"
