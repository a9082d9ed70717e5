# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The writers policy of a volume: which hosts may write to it, and how many at once.

Its texts are metadata of the volume and extra specs of its type. Each of them can only
take away: a host is a writer if it is on every list, and the smallest number counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import iscsi_name, plain_name

#: Names of servers (their ids), hosts or initiators, between commas or spaces.
WRITERS = "lunshare:writers"
#: How many of them may have the volume rw at the same time.
MAX_WRITERS = "lunshare:max_writers"
KEYS = (WRITERS, MAX_WRITERS)
_PREFIX = "lunshare:"

_MOST_TEXT = 255  # characters, as of any value of metadata
_MOST_WRITERS = 1000
_NUMBER = re.compile(r"[0-9]{1,4}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]{0,253}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class WritersPolicy:
    """Who may write: who is on each of the lists, and at most ``most`` at once."""

    lists: tuple[tuple[str, ...], ...] = ()
    most: int | None = None

    def names(self, *names: str | None) -> bool:
        """Whether a host with these names is on every list."""
        plain = {plain_name(name) for name in names if name}
        return all(not plain.isdisjoint(listed) for listed in self.lists)

    def place(self, *names: str | None) -> int:
        """Return where the first list has a host with these names, -1 if nowhere."""
        names = tuple(plain_name(name) for name in names if name)
        first = self.lists[0] if self.lists else ()
        return next((at for at, name in enumerate(first) if name in names), -1)


def policy(*sources: Mapping[str, str]) -> WritersPolicy | None:
    """Return the policy that these metadata and extra specs make, None without any.

    A text that nobody has checked, and that has no meaning, lets nobody write.
    """
    lists = tuple(_listed(source[WRITERS]) for source in sources if WRITERS in source)
    counts = [_most(source[MAX_WRITERS]) for source in sources if MAX_WRITERS in source]
    if not lists and not counts:
        return None
    return WritersPolicy(lists, min(counts, default=None))


def check(items: Mapping[str, str], field: str, others: Collection[str] = ()) -> None:
    """Check the policy in metadata or extra specs that are about to be written.

    ``others`` are more keys with the prefix: a misspelt one would let everybody write.

    :raises InvalidValue: it has no meaning; the sentence names ``field`` and the key.
    """
    for key in items:
        if key.lower().startswith(_PREFIX) and key not in (*KEYS, *others):
            names = f"give {', '.join((*KEYS, *others))}, or another name"
            raise InvalidValue(f"{field} {key[:_MOST_TEXT]}", items[key], names)
    if WRITERS in items:
        parse_writers(items[WRITERS], f"{field} {WRITERS}")
    if MAX_WRITERS in items:
        parse_max(items[MAX_WRITERS], f"{field} {MAX_WRITERS}")


def parse_writers(text: str, field: str = WRITERS) -> tuple[str, ...]:
    """Return the names of a list, in lower case, each once. An empty one names nobody.

    :raises InvalidValue: it is too long, or one of them is not a name.
    """
    if len(text) > _MOST_TEXT:
        raise InvalidValue(
            field,
            f"{text[:40]}...",
            f"it has {len(text)} characters; give at most {_MOST_TEXT}, such as the"
            " names of hosts instead of the ids of servers",
        )
    names = (_name(word, field) for word in re.split(r"[,\s]+", text) if word)
    return tuple(dict.fromkeys(names))


def parse_max(text: str, field: str = MAX_WRITERS) -> int:
    """Return the number of a text.

    :raises InvalidValue: it is none, or too large.
    """
    if _NUMBER.fullmatch(text) and int(text) <= _MOST_WRITERS:
        return int(text)
    raise InvalidValue(
        field, text[:40], f"give a whole number from 0 to {_MOST_WRITERS}"
    )


def _name(word: str, field: str) -> str:
    lowered = word.lower()
    if lowered.startswith(("iqn.", "eui.", "naa.")):
        return iscsi_name(word, field)
    if _HOST.fullmatch(lowered):
        return lowered
    raise InvalidValue(
        field,
        word[:40],
        "give ids of servers, names of hosts or iSCSI names, between commas",
    )


def _listed(text: str) -> tuple[str, ...]:
    try:
        return parse_writers(text)
    except InvalidValue:
        return ()


def _most(text: str) -> int:
    try:
        return parse_max(text)
    except InvalidValue:
        return 0


def among(names: Iterable[str], most: int = 5) -> str:
    """Return some of these names for a sentence, and how many more there are."""
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
