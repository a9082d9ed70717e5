# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Before the kit is imported: its failures show values, its runs end with totals."""

import pytest

pytest.register_assert_rewrite("lunshare.drivers.conformance")
pytest_plugins = ["lunshare.drivers.conformance.summary"]
