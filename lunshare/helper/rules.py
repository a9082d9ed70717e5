# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which commands may run: the lines of rootwrap.d, on what helper.conf serves.

The matcher and the form of the files are oslo.rootwrap's. They run inside this
process, so that a command does not start a Python interpreter.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace

from oslo_rootwrap import filters, wrapper

from lunshare.drivers.errors import (
    DriverError,
    HelperRefused,
    Misconfigured,
    Unsupported,
)
from lunshare.helper.config_file import need_only_root_writes
from lunshare.helper.served import PATH, Served

# A driver's command has at most 30 words; the longest has about 400 characters.
_MOST_WORDS, _MOST_CHARACTERS = 64, 4096


class Rules:
    """The filter files in ``directory``.

    :raises Misconfigured: a user other than root could change them.
    """

    def __init__(
        self, directory: str, exec_dirs: Sequence[str], served: Served
    ) -> None:
        self._exec_dirs = list(exec_dirs)
        self._filters = _load_filters(directory, served)
        self._foreign = [] if served.manage else _foreign(directory, served)

    def __len__(self) -> int:
        return len(self._filters)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line to execute; raises as ``Commands.command``."""
        shown = shlex.join(argv)[:_MOST_CHARACTERS]
        if len(argv) > _MOST_WORDS or any(len(w) > _MOST_CHARACTERS for w in argv):
            limit = f"{_MOST_WORDS} words of {_MOST_CHARACTERS} characters"
            raise HelperRefused(shown, f"a command has at most {limit}")
        if not all(word.isprintable() for word in argv):
            raise HelperRefused(shown, "an argument has a control character")
        try:
            match = wrapper.match_filter(self._filters, list(argv), self._exec_dirs)
        except wrapper.NoFilterMatched:
            raise self._refused(shown, argv) from None
        except wrapper.FilterMatchNotExecutable:
            raise HelperRefused(
                shown, f"the program is not in {':'.join(self._exec_dirs)}"
            ) from None
        return list(match.get_command(list(argv), self._exec_dirs))

    def _refused(self, shown: str, argv: Sequence[str]) -> DriverError:
        """The error: no rule allows it, or one would with manage_foreign_disks."""
        if any(rule.match(list(argv)) for rule in self._foreign):
            what = "managing a foreign disk"
            return Unsupported(what, f"set manage_foreign_disks = yes in {PATH}")
        return HelperRefused(
            shown, f"no line in rootwrap.d allows it on what {PATH} serves"
        )


def _load_filters(directory: str, served: Served) -> list[filters.CommandFilter]:
    """Load the filters, without the one that oslo.rootwrap adds to every set.

    load_filters appends a CommandFilter for privsep-helper (oslo.rootwrap 7.2
    to 7.10), which would let the client run any privsep context.
    """
    paths = [directory, *(entry.path for entry in _scan(directory))]
    for path in paths:
        need_only_root_writes(path)
    loaded = wrapper.load_filters([directory])
    rules = [rule for rule in loaded if rule.exec_path != "privsep-helper"]
    for rule in rules:
        if rule.run_as != "root" or isinstance(rule, filters.ChainingFilter):
            raise Misconfigured(
                f"filter {rule.name} in {directory}",
                "only filters that run one command as root are supported",
            )
        rule.args = tuple(served.expand(word) for word in rule.args)
    return rules


def _foreign(directory: str, served: Served) -> list[filters.CommandFilter]:
    """The filters that allow more when manage_foreign_disks is yes."""
    pairs = zip(
        _load_filters(directory, served),
        _load_filters(directory, replace(served, manage=True)),
        strict=True,
    )
    return [more for rule, more in pairs if rule.args != more.args]


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(directory))
    except OSError as error:
        raise Misconfigured(
            f"filter directory {directory}: {error.strerror}",
            "install rootwrap.d there or name it with --filters",
        ) from None
