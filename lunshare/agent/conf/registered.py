# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which options are registered, also those of libraries and drivers."""

from __future__ import annotations

from collections.abc import Iterator

from oslo_config import cfg

_DEFAULT = "DEFAULT"


def options(conf: cfg.ConfigOpts) -> Iterator[tuple[str, cfg.Opt]]:
    """Yield (section, option) for each registered option.

    oslo.config 10.7 has no public way to list them.
    """
    for info, group in conf._all_opt_infos():
        yield group.name if group else _DEFAULT, info["opt"]


def names(conf: cfg.ConfigOpts, section: str) -> set[str]:
    """Return the names of the options of a section."""
    return set(conf if section == _DEFAULT else conf[section])


def former_names(conf: cfg.ConfigOpts, section: str) -> set[str]:
    """Return the names that options had in this section before they were renamed."""
    return {
        former.name or option.dest
        for home, option in options(conf)
        for former in option.deprecated_opts
        if (former.group or home) == section
    }
