# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the configuration files say that no option stands for.

oslo.config passes over such a line, so that a misspelt option would be a default.
"""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg


def unknown(conf: cfg.ConfigOpts, section: str) -> list[str]:
    """The options of a section that nobody has registered."""
    known = set(conf if section == "DEFAULT" else conf[section])
    written = (name for file in _files(conf) for name in _section(file, section))
    # oslo.config takes a hyphen for an underscore.
    return sorted({name for name in written if name.replace("-", "_") not in known})


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """Those that were read: named on the command line, or found."""
    directories = (Path(each) for each in conf.config_dir or [])
    found = (str(file) for each in directories for file in sorted(each.glob("*.conf")))
    return [*conf.config_file, *found]


def _section(file: str, name: str) -> list[str]:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(file, sections).parse()
    return list(sections.get(name, {}))
