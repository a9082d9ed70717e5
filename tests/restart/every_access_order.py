# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""As test_access_orders, with all operations, and one step of the target that fails.

``make orders`` runs it; it takes hours.
"""

from __future__ import annotations

import itertools

import pytest

from tests.restart.access_explorer import Explorer
from tests.restart.access_operations import EVERY, can_be_together
from tests.restart.access_scenes import SCENES, begin, explorer

__all__ = ["explorer"]


@pytest.mark.parametrize("scene", SCENES)
def test_every_operation_in_every_order(explorer: Explorer, scene: str) -> None:
    begun = begin(explorer, scene)
    for clients in itertools.combinations_with_replacement(EVERY, 2):
        if can_be_together(*clients):
            explorer.explore(begun, clients, faults=1)
    print(f"{scene}: {explorer.counted}")
