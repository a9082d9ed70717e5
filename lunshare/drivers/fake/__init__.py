# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A driver whose storage is a dictionary: for tests and first steps."""

from lunshare.drivers.fake.fake_driver import FakeVolumes

__all__ = ["FakeVolumes"]
