# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find options in the configuration files that do not exist.

oslo.config ignores such a line, so a misspelt option would keep its default.
"""

from __future__ import annotations

from oslo_config import cfg

from lunshare.agent.conf import registered
from lunshare.drivers import config_files

#: Options of the command line alone.
_COMMAND_LINE = {"show_config"}

_REPORTS = (
    "lunshared no longer reports to the scheduler of a Cinder: remove it. A Cinder uses"
    " this storage through cinder-volume with volume_driver ="
    " lunshare.cinder.LunshareDriver, instead of lunshared (docs/fleet.md)"
)
#: Options that are gone, by section, and what to do.
_REMOVED = {
    ("scheduler", "transport_url"): _REPORTS,
    ("scheduler", "report_interval"): _REPORTS,
}


def sentence(section: str, names: list[str]) -> str:
    """Return what is wrong with these unknown options of a section."""
    for name in names:
        if remedy := _REMOVED.get((section, name.replace("-", "_"))):
            return f"[{section}] {name}: {remedy}"
    return (
        f"[{section}]: {', '.join(names)}: no such option; correct or remove"
        " it, share/lunshare/etc/lunshare.conf.sample describes all of them"
    )


def unknown(conf: cfg.ConfigOpts, section: str) -> list[str]:
    """Return the options of a section in the files that are not registered."""
    names = registered.names(conf, section) - _COMMAND_LINE
    former = registered.former_names(conf, section)
    words = {
        name for file in config_files.paths(conf) for name in _section(file, section)
    }
    # oslo.config 10.7 ignores a name with a hyphen for an underscore.
    return sorted(words - former - names)


def _section(file: str, name: str) -> list[str]:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(file, sections).parse()
    return list(sections.get(name, {}))
