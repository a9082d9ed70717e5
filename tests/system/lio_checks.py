# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What several LIO tests ask of a host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lunshare.drivers.values import Auth
from tests.system.lio_hosts import BLOCK, DATA_PROTECT, LoginRefused, Refused
from tests.system.lio_node import Node

ONE, TWO = b"1" * BLOCK, b"2" * BLOCK
Make = Callable[[], Node]


def refused(node: Node, host: str, auth: Auth | None = None) -> bool:
    try:
        node.login(host, auth).logout()
    except LoginRefused:
        return True
    return False


def protected(call: Callable[..., object], *given: object) -> bool:
    """Whether the call fails because the LUN is write-protected (07h/27h)."""
    with pytest.raises(Refused) as caught:
        call(*given)
    return (caught.value.key, caught.value.ascq) == (DATA_PROTECT, 0x2700)
