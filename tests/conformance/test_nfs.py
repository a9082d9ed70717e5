# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""NFS volumes keep the promises, on a directory; tests/system has a real server."""

from drivers.conformance.volume import VolumeContract
from tests.conformance.share_kit import DirectoryFixtures


class TestSparse(DirectoryFixtures, VolumeContract):
    pass


class TestPreallocated(DirectoryFixtures, VolumeContract):
    reserves_space = True
    options = {"nfs_clone": False, "nfs_sparsed_volumes": False}
