# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as raw files on NFS shares.

``driver`` is the contract, ``mounting`` holds every command, ``files`` the verbs
of the root helper on one share, ``known`` what is remembered. Shares are
described in lunshare.drivers.share_options. The daemon never touches a share: the
helper does, each time with a deadline.
"""

from lunshare.drivers.nfs.driver import NfsVolumes

__all__ = ["NfsVolumes"]
