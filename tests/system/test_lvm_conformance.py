# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance kit on the LVM driver, thin and thick, on a real volume group."""

from __future__ import annotations

import pytest

from lunshare.drivers.conformance.volume import VolumeContract
from tests.system.lvm_kit import ThickFixtures, ThinFixtures, group, root

__all__ = ["group", "root"]
# A verb that is killed at each of its steps runs a hundred commands of LVM, a second
# each in an emulated guest.
pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


class TestThin(ThinFixtures, VolumeContract):
    pass


class TestThick(ThickFixtures, VolumeContract):
    pass
