# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshared --show-config``: every option, its value and where the value is from."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from lunshare.agent import backends, listen_addresses, metrics_listener, nova
from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.conf import config_errors, registered
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.http import tls
from lunshare.agent.parts import database_url
from lunshare.drivers.helper_client import Helper

_HIDDEN = "****"
# They show the configuration; they are not part of it.
_OMITTED = {"show_config", "config_source", "shell_completion"}
_SOURCES = {
    cfg.Locations.command_line: "command line",
    cfg.Locations.environment: "environment",
}


def text(conf: cfg.ConfigOpts) -> str:
    """Return the configuration as lines ``option = value  # source`` by section.

    It is checked as at the start, without any I/O on storage. Secrets are hidden.

    :raises StartupError: the configuration is wrong.
    """
    with config_errors.known_references(conf):
        _check(conf)
    sections: dict[str, list[str]] = {}
    for section, option in registered.options(conf):
        if option.dest not in _OMITTED:
            sections.setdefault(section, []).append(_line(conf, section, option))
    return "\n\n".join(
        "\n".join([f"[{section}]", *sorted(lines)])
        for section, lines in sections.items()
    )


def _check(conf: cfg.ConfigOpts) -> None:
    """Create what the start creates of the options; nothing of it is started."""
    for address in listen_addresses.configured(conf):
        tls.certificates(conf, address)
    metrics_listener.configured(conf)
    backends.load(conf, Helper(conf.helper.socket))
    Database(database_url(conf), connections=1)
    AccessRules(conf)
    nova.client(conf, 1)


def _line(conf: cfg.ConfigOpts, section: str, option: cfg.Opt) -> str:
    group = None if section == "DEFAULT" else section
    value = conf[section][option.dest] if group else conf[option.dest]
    shown = _shown(option, value)
    return f"{option.dest} = {shown}  # {_source(conf, option.dest, group)}"


def _shown(option: cfg.Opt, value: Any) -> str:
    if value is None:
        used = option.sample_default
        return f"(not set: {used})" if used else "(not set)"
    if option.secret:
        return _HIDDEN
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _source(conf: cfg.ConfigOpts, name: str, group: str | None) -> str:
    """Return the file that sets the option, or what else does."""
    place = conf.get_location(name, group)
    if place is None:
        return "default"
    if place.location is cfg.Locations.user:
        return str(place.detail)
    return _SOURCES.get(place.location, "default")
