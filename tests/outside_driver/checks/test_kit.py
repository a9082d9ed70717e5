# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The driver keeps every promise: the kit, without a line changed in lunshare."""

from dirs_fixtures import DirsFixtures
from lunshare.drivers.conformance.volume import VolumeContract


class TestDirs(DirsFixtures, VolumeContract):
    pass
