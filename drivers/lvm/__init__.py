# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as logical volumes of one volume group, thin or thick.

``driver`` is the contract. ``thin`` and ``thick`` are what differs between the two,
with ``thin_copies``, ``thick_copies`` for snapshots and ``wiping`` for what is
deleted; ``handing`` takes disks over and gives them away; ``claim`` keeps others off
the group. ``commands`` holds every command, ``report`` reads LVM's JSON, ``saying``
its errors, ``names`` is what we call things.
"""

from lunshare.drivers.lvm.driver import LvmVolumes

__all__ = ["LvmVolumes"]
