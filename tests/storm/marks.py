# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The marks that hosts leave on disks: one block for each client at each place."""

from __future__ import annotations

from lunshare.drivers.fake.fake_storage import BLOCK

#: The first block of each place. They are far apart, so an incomplete copy shows.
PLACES = (0, 200_000)
WIDTH = 32


def block(client: int, place: int) -> int:
    """The block that a client alone writes."""
    return PLACES[place] + client


def block_bytes(client: int, number: int) -> bytes:
    """A complete block; numbers start with 1 and grow with each write of the client."""
    return f"{client}/{number}".encode().ljust(WIDTH, b".").ljust(BLOCK, b"s")


def number_in(blocks: dict[int, bytes], client: int, place: int) -> int | None:
    """The number of the client's mark, 0 without one, None for foreign bytes."""
    data = blocks.get(block(client, place))
    if data is None or not data.strip(b"\0"):
        return 0
    name, _, rest = data.partition(b"/")
    number = rest.partition(b".")[0]
    if name != str(client).encode() or not number.isdigit():
        return None
    return int(number)
