# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every test shares."""

import pytest

# Before the kit is imported, so that its failures show the values compared.
pytest.register_assert_rewrite("drivers.conformance")
