# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The NFS drivers pass the kit on a directory; tests/system has a real server."""

from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.conformance.volume import VolumeContract
from tests.conformance.nfs_hosts import ShareTargetFixtures
from tests.conformance.nfs_kit import DirectoryFixtures


class TestSparse(DirectoryFixtures, VolumeContract):
    pass


class TestPreallocated(DirectoryFixtures, VolumeContract):
    options = {"nfs_clone": False, "nfs_sparsed_volumes": False}


class TestShareTarget(ShareTargetFixtures, TargetContract):
    """It enforces nothing, and claims no ability."""
