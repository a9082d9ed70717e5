# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as raw files on NFS shares.

==============  ================================================================
nfs_driver      the contract ``VolumeDriver``
mount_commands  every command that runs as root
share_checks    the check of the shares: mounts, and which are lost
share_files     the verbs of the root helper on one share
volume_cache    which share each volume is on
==============  ================================================================

Shares are described in lunshare.drivers.share_options. The daemon never touches a
share itself: the helper does, each time with a deadline.
"""

from lunshare.drivers.nfs.nfs_driver import NfsVolumes

__all__ = ["NfsVolumes"]
