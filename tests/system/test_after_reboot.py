# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""After an orderly reboot: what tests/system/leave.py left is as it was."""

import pytest

from tests.system.left import Survived

pytestmark = pytest.mark.system


class TestAfterReboot(Survived):
    """See tests/system/left.py."""
