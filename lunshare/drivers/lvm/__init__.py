# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as logical volumes of one volume group, thin or thick.

===================  ===========================================================
lvm_driver           the contract ``VolumeDriver``
thin, thick          what differs between thin and thick volumes
thin_snapshots, ...  snapshots and reverts of each
deleted_volumes      thick volumes that are deleted and not yet wiped
foreign_volumes      managing foreign volumes, and unmanaging volumes
claim                one lunshare for each volume group
lvm_commands         every command that runs as root
command_errors       what LVM's error messages mean
lvm_reports          LVM's JSON reports as values
disk_events          disks of a group that are lost or back
cached_listing       the list of volumes, read again only after a change
names                the names of logical volumes
mapped               what device-mapper and udev know of active volumes
brief_opens          waiting while udev has a volume open
===================  ===========================================================
"""

from lunshare.drivers.lvm.lvm_driver import LvmVolumes

__all__ = ["LvmVolumes"]
