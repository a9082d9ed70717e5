# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as logical volumes of one volume group, thin or thick.

``driver`` is the contract, ``thin`` and ``thick`` are what differs between the
two, ``commands`` holds every command, ``report`` reads LVM's JSON.
"""

from drivers.lvm.driver import LvmVolumes

__all__ = ["LvmVolumes"]
