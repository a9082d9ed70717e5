# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node, and hosts, as tests/system has them."""

from tests.system.conftest import api, borrow, host, volume, volumes

__all__ = ["api", "borrow", "host", "volume", "volumes"]
