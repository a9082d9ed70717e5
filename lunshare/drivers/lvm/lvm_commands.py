# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that the LVM driver runs as root; see command_errors for failures.

Each form of a command has a line in rootwrap.d/lvm.filters, in the same order; a
test compares the two. Sizes are bytes; LVM rounds them up to complete extents.
"""

from __future__ import annotations

from lunshare.drivers.base import Root
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded, HelperUnreachable
from lunshare.drivers.lvm import lvm_reports

_JSON = ("--reportformat", "json", "--units", "b", "--nosuffix")

# The names "volume-<uuid>". LVM's regular expressions have no {n}, so this is less
# exact; reports are parsed with the exact pattern.
_HEX = "[0-9a-f]+"
_VOLUMES = f'lv_name=~"^volume-{_HEX}-{_HEX}-{_HEX}-{_HEX}-{_HEX}$"'

_DETAIL_FIELDS = (
    "lv_name,lv_size,pool_lv,origin,lv_tags,lv_layout,lv_role,lv_permissions"
    ",lv_device_open,lv_snapshot_invalid,lv_merging"
)


class Lvm:
    """The commands on one volume group. All raise what ``Root.run`` raises.

    ``timeout`` is the seconds for each command. ``progress_timeout`` is the seconds
    without progress after which a copy, a wipe or a merge fails.
    """

    def __init__(
        self, root: Root, group: str, timeout: float, progress_timeout: float = 120.0
    ) -> None:
        self._root, self.name, self._timeout = root, group, timeout
        self.progress_timeout = progress_timeout
        #: A change may have been killed, and may have left a device suspended.
        self.may_be_suspended = True

    # Queries

    def volume_group(self) -> lvm_reports.VolumeGroup:
        """Return size, free space and tags of the group, and its disks."""
        fields = "vg_size,vg_free,vg_extent_size,vg_tags,vg_missing_pv_count"
        disks = "pv_name,pv_mda_used_count"
        text = self._run("vgs", *_JSON, "-o", f"{fields},{disks}", self.name)
        return lvm_reports.volume_group(text)

    def metadata_commit(self, device: str) -> dict[str, int] | None:
        """Return what identifies the last commit of the metadata on a disk.

        Reads only the disk's headers, and starts no process.
        """
        commit = self._root.call("lvm.commit", timeout=self._timeout, device=device)
        return commit if isinstance(commit, dict) else None

    def thin_pool(self, name: str) -> lvm_reports.ThinPool | None:
        """Return the thin pool of that name; None if it is not a thin pool."""
        where = f"{self.name}/{name}"
        fields = "lv_size,segtype,zero,transaction_id"
        text = self._run("lvs", *_JSON, "-o", fields, where)
        pools = lvm_reports.pools(text)
        return pools[0] if pools else None

    def pool_usage(self, name: str) -> lvm_reports.PoolUsage | None:
        """Return how full an active thin pool is, from the kernel; else None.

        Starts no process.
        """
        where = {"group": self.name, "pool": name}
        text = self._root.call("lvm.pool", timeout=self._timeout, **where)
        return None if text is None else lvm_reports.pool_usage(str(text))

    def mapped(self, name: str) -> int:
        """Return how many bytes of an active thin volume its pool has mapped.

        Starts no process.

        :raises DriverError: the volume is not active, or its pool has failed.
        """
        where = {"group": self.name, "volume": name}
        text = self._root.call("lvm.mapped", timeout=self._timeout, **where)
        return lvm_reports.mapped_bytes(f"{self.name}/{name}", str(text))

    def logical_volumes(self) -> tuple[lvm_reports.LogicalVolume, ...]:
        """Return every logical volume. These fields need no ioctl for each row."""
        fields = "lv_name,lv_size,pool_lv"
        text = self._run("lvs", *_JSON, "-o", fields, self.name)
        return lvm_reports.logical_volumes(text)

    def partial_volumes(self) -> frozenset[str]:
        """Return the names of the logical volumes that need a lost disk."""
        text = self._run("lvs", *_JSON, "-o", "lv_name,lv_health_status", self.name)
        return lvm_reports.partial_volumes(text)

    def details(self) -> tuple[lvm_reports.VolumeDetails, ...]:
        """Return every logical volume with all fields: ioctls for each row."""
        text = self._run("lvs", *_JSON, "-o", _DETAIL_FIELDS, self.name)
        return lvm_reports.volume_details(text)

    def details_of(
        self, volume: str, *snapshots: str
    ) -> dict[str, lvm_reports.VolumeDetails]:
        """Return by name a volume, its parts, its snapshots, and ``snapshots``."""
        terms = [f'lv_name=~"^{volume}"', f'origin="{volume}"']
        select = " || ".join(terms + [f'lv_name="{name}"' for name in snapshots])
        text = self._run(
            "lvs", *_JSON, "-o", _DETAIL_FIELDS, "--select", select, self.name
        )
        return {lv.name: lv for lv in lvm_reports.volume_details(text)}

    def segments(self, name: str) -> tuple[lvm_reports.Segment, ...]:
        """Return the extents of the physical volumes that it uses."""
        fields = "seg_size,seg_pe_ranges"
        text = self._run(
            "lvs", *_JSON, "--segments", "-o", fields, f"{self.name}/{name}"
        )
        return lvm_reports.segments(text)

    # Changes

    def create_thick(self, name: str, size: int) -> None:
        """Create a linear volume. It has the earlier bytes of its extents."""
        self._run_change(
            "lvcreate", "--yes", "-n", name, "-L", _sectors(size), self.name
        )

    def create_thin(self, name: str, size: int, pool: str) -> None:
        """Create a thin volume. It reads as zeros."""
        where = f"{self.name}/{pool}"
        virtual = ("--thin", "--virtualsize", _sectors(size))
        self._run_change("lvcreate", "--yes", *virtual, "-n", name, where)

    def snapshot_thick(self, name: str, volume: str, reserve: int) -> None:
        """Create a snapshot of a thick volume with ``reserve`` bytes of its own.

        The reserve is in bytes: of a percentage LVM allocates less if the group has
        less (lvm2 2.03.16). LVM reduces a reserve larger than it can use.
        """
        size, where = ("-L", _sectors(reserve)), f"{self.name}/{volume}"
        self._run_change("lvcreate", "--yes", "--snapshot", "-n", name, *size, where)

    def snapshot_thin(self, name: str, of: str, skip_activation: bool) -> None:
        """Create a thin volume with the bytes of ``of``, active after a boot or not."""
        skip, where = "-ky" if skip_activation else "-kn", f"{self.name}/{of}"
        self._run_change("lvcreate", "--yes", "--snapshot", skip, "-n", name, where)

    def remove(self, name: str) -> None:
        """Remove a volume that is not open."""
        self._run_change("lvremove", "--yes", f"{self.name}/{name}")

    def remove_matching(self, pool: str, *names: str) -> None:
        """Remove those of ``names`` in ``pool`` ("": thick ones); none is success."""
        either = " || ".join(f'lv_name="{name}"' for name in names)
        select = f'pool_lv="{pool}" && ({either})'
        self._run_change("lvremove", "--yes", "--select", select, self.name)

    def rename(self, old: str, new: str) -> None:
        """Rename it, in one commit of LVM's metadata. It may be open."""
        self._run_change("lvrename", self.name, old, new)

    def extend(self, name: str, size: int, *extents: str) -> None:
        """Extend it to ``size``; onto these ``extents`` only, if given."""
        where = f"{self.name}/{name}"
        self._run_change("lvextend", "-L", _sectors(size), where, *extents)

    def reduce(self, name: str, size: int) -> None:
        """Reduce a deleted volume to ``size``."""
        where = f"{self.name}/{name}"
        self._run_change("lvreduce", "--yes", "--force", "-L", _sectors(size), where)

    def activate(self, name: str) -> None:
        """Activate it, also (``-K``) if it has the flag to skip activation."""
        self._run_change("lvchange", "-ay", "-K", f"{self.name}/{name}")

    def activate_all(self) -> None:
        """Activate every volume of lunshare, in one command."""
        self._run_change("lvchange", "-ay", "-K", "--select", _VOLUMES, self.name)

    def activate_pool(self, name: str) -> None:
        """Activate a thin pool. If there is no thin pool of that name, do nothing."""
        pool = f'segtype="thin-pool" && lv_name="{name}"'
        self._run_change("lvchange", "-ay", "--select", pool, self.name)

    def deactivate(self, name: str) -> None:
        """Deactivate it. Fails if it is open; LVM waits while udev reads it."""
        self._run_change("lvchange", "-an", f"{self.name}/{name}")

    def refresh(self, name: str) -> None:
        """Reload its table. This resumes a device that a killed command suspended."""
        self._run_change("lvchange", "--refresh", f"{self.name}/{name}")

    def add_tag(self, name: str, tag: str) -> None:
        """Add a tag to a volume."""
        self._run_change("lvchange", "--addtag", tag, f"{self.name}/{name}")

    def delete_tag(self, name: str, tag: str) -> None:
        """Delete a tag of a volume. A tag that does not exist is success."""
        self._run_change("lvchange", "--deltag", tag, f"{self.name}/{name}")

    def tag_group(self, tag: str) -> None:
        """Add a tag to the group."""
        self._run_change("vgchange", "--addtag", tag, self.name)

    def merge(self, snapshot: str) -> None:
        """Start to merge a snapshot into its thick volume; the snapshot is then gone.

        LVM continues in the background until the merge is complete. If the volume is
        open, LVM starts the merge at the next activation.
        """
        how = ("--yes", "--background", "--interval", "1", "--mergesnapshot")
        self._run_change("lvconvert", *how, f"{self.name}/{snapshot}")

    def merge_progress(self, name: str) -> str | None:
        """Return the progress of a merge, a text that changes; None without a merge."""
        fields, where = "lv_merging,data_percent", f"{self.name}/{name}"
        text = self._run("lvs", *_JSON, "-o", fields, where)
        return lvm_reports.merge_progress(text)

    def copy(self, source: str, target: str, size: int) -> None:
        """Copy ``size`` bytes of one volume to another, flush them, and verify them."""
        paths = {"source": self.path(source), "target": self.path(target)}
        self._root.call("lvm.copy", timeout=self.progress_timeout, **paths, length=size)

    def wipe(self, name: str, start: int = 0, size: int | None = None) -> None:
        """Overwrite ``size`` bytes, or all to the end, with zeros, and flush them."""
        where = {"device": self.path(name), "start": start, "length": size}
        self._root.call("lvm.zero", timeout=self.progress_timeout, **where)

    def path(self, name: str) -> str:
        """Return the path of its device node."""
        return f"/dev/{self.name}/{name}"

    def _run(self, *argv: str) -> str:
        return self._root.run(*argv, timeout=self._timeout)

    def _run_change(self, program: str, *argv: str) -> None:
        try:
            self._run(program, *argv)
        except CommandFailed as error:
            self.may_be_suspended |= error.exit_code < 0  # killed
            raise
        except (DeadlineExceeded, HelperUnreachable):
            self.may_be_suspended = True
            raise


def _sectors(size: int) -> str:
    """Round up to 512 bytes: LVM refuses a size that is not a multiple."""
    return f"{-(-size // 512) * 512}b"
