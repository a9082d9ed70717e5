# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""After a power cut: what tests/system/leave.py left is as it was."""

import pytest

from tests.system.left import Survived

pytestmark = pytest.mark.system


class TestAfterPowerCut(Survived):
    """See tests/system/left.py."""
