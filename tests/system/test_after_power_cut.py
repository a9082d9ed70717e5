# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""After a power cut: what tests/system/prepare_outage.py created is unchanged."""

import pytest

from tests.system.after_outage import OutageSurvival

pytestmark = pytest.mark.system


class TestAfterPowerCut(OutageSurvival):
    """See tests/system/after_outage.py."""
