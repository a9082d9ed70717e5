# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Load the kit's summary, and make its failures show values."""

import pytest

pytest.register_assert_rewrite("lunshare.drivers.conformance")
pytest_plugins = ["lunshare.drivers.conformance.summary"]
