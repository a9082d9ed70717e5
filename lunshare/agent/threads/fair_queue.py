# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A queue from which nobody takes more than others who wait."""

from __future__ import annotations

from collections import OrderedDict, deque
from queue import SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items of several owners, who come by turns, each with its oldest item."""

    def __init__(self) -> None:
        self._mutex, self._count = Lock(), SimpleQueue[None]()
        self._items: OrderedDict[object, deque[Item]] = OrderedDict()

    def put(self, owner: object, *items: Item) -> None:
        """Add an item; without one, a call of ``get`` that finds none returns None."""
        with self._mutex:
            if items:
                self._items.setdefault(owner, deque()).extend(items)
        self._count.put(None)

    def get(self) -> Item | None:
        """Wait for an item; None if there is none, and never will be."""
        self._count.get()
        with self._mutex:
            if not self._items:
                return None
            owner, items = self._items.popitem(last=False)
            item = items.popleft()
            if items:
                self._items[owner] = items  # behind the others
            return item
