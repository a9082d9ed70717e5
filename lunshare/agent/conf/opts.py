# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Collect the options: for the daemon, and for the sample file."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg
from oslo_policy import opts as policy_options

from lunshare.agent.conf import listeners, node, sections, unknown_options
from lunshare.agent.model.errors import StartupError

Options = Sequence[cfg.Opt]

_REMOTE_TIMEOUT = 5.0  # seconds; a request waits so long for a policy server


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options but those of backend sections, which the file names."""
    conf.register_cli_opts(_command_line() + node.COMMANDS)
    conf.register_opts(_default())
    conf.register_opts(listeners.TLS_OPTIONS, "tls")
    for group, options in [*sections.SECTIONS.items(), *policy_options.list_opts()]:
        conf.register_opts(options, group)
    conf.set_default("remote_timeout", _REMOTE_TIMEOUT, "oslo_policy")


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option once, since oslo.config checks a value when it is read.

    :raises oslo_config.cfg.Error: names the option and what it may be.
    :raises StartupError: a section has an option that does not exist.
    """
    for section in ("DEFAULT", *sections.SECTIONS, "tls", "oslo_policy"):
        if unknown := unknown_options.unknown(conf, section):
            raise StartupError(unknown_options.sentence(section, unknown))
    for option in _command_line() + _default():
        getattr(conf, option.dest)
    for option in sections.SECTIONS["scheduler"]:
        getattr(conf.scheduler, option.dest)


def _command_line() -> list[cfg.Opt]:
    return [*node.CLI_OPTIONS, *listeners.CLI_OPTIONS]


def _default() -> list[cfg.Opt]:
    return [*listeners.OPTIONS, *node.OPTIONS, *node.API_OPTIONS, *node.QUOTA_OPTIONS]


def _policy() -> list[tuple[str, Options]]:
    """Return the options of oslo.policy with the defaults of this node."""
    groups = policy_options.list_opts()
    for _, options in groups:
        cfg.set_defaults(options, remote_timeout=_REMOTE_TIMEOUT)
    return list(groups)


def register_backend(
    conf: cfg.ConfigOpts, name: str, extra: Sequence[cfg.Opt] = ()
) -> None:
    """Register one backend section with the options of its drivers."""
    conf.register_opts([*sections.BACKEND, *extra], name)


def list_opts() -> list[tuple[str, Options]]:
    """Return groups and options for oslo-config-generator, a backend of each kind.

    The options of every backend are shown with the first one.
    """
    # Imported here, since the daemon imports only the drivers that it uses.
    from lunshare.drivers.lvm import LvmVolumes  # noqa: PLC0415
    from lunshare.drivers.nfs import NfsVolumes  # noqa: PLC0415
    from lunshare.drivers.targets.lio import LioTarget  # noqa: PLC0415

    common = [*sections.BACKEND, *LvmVolumes.OPTIONS, *LioTarget.OPTIONS]
    return [
        ("DEFAULT", _command_line() + _default()),
        ("tls", listeners.TLS_OPTIONS),
        *sections.SECTIONS.items(),
        *_policy(),
        ("lvm", common),
        ("nfs", NfsVolumes.OPTIONS),
    ]
