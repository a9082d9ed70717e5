# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A backend's section of cinder.conf, read with the options of its own drivers.

Cinder has options of the same names as ours, with other defaults and choices, and
oslo.config refuses the second of two different options. So the section is read again,
from the same files, into a configuration that Cinder does not see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg

from lunshare.cinder.foreign_options import FOREIGN
from lunshare.drivers import config_files, registry, wiping
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.helper_client import Helper

#: The options of this driver itself. No other driver of Cinder has these names.
OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "lunshare_storage",
        default="lvm",
        help="The driver that creates volumes: an entry point of lunshare.drivers, such"
        " as lvm or nfs.",
    ),
    cfg.StrOpt(
        "lunshare_target",
        default="lio",
        help="The driver that exports volumes: an entry point of lunshare.targets, such"
        " as lio, or nfs for hosts that mount the share themselves.",
    ),
    cfg.StrOpt(
        "lunshare_helper_socket",
        default="/run/lunshare/helper.sock",
        help="Unix socket of the root helper. The user of cinder-volume must be the one"
        " that the helper serves (lunshare-helper --user).",
    ),
    *wiping.OPTIONS,
]

_SHARED = "backend_defaults"
_HOST = cfg.StrOpt("backend_host")  # Cinder reads it from the section only
# Cinder's own LVM driver, and its defaults.
_PEER = "cinder.volume.drivers.lvm.LVMVolumeDriver"
_PEER_GROUP, _PEER_PREFIX = "cinder-volumes", "iqn.2010-10.org.openstack:"
# What a value in a section may refer to, as in target_ip_address = $my_ip.
_REFERRED = ("my_ip", "host", "state_path")


class Section:
    """One backend's section of the files that Cinder has read."""

    def __init__(self, conf: cfg.ConfigOpts, name: str) -> None:
        """``conf`` is Cinder's configuration. Does no I/O but reading its files."""
        self.name, self._cinder = name, conf
        files = list(conf.config_file or ())
        directories = list(conf.config_dir or ())
        self._files = config_files.paths(conf)
        self._conf = cfg.ConfigOpts()
        self._conf(args=[], default_config_files=files, default_config_dirs=directories)
        self._conf.register_opts(
            [cfg.StrOpt(name, default=getattr(conf, name)) for name in _REFERRED]
        )
        self._known: set[str] = set()

    @property
    def host(self) -> str:
        """Return host@backend, which Cinder stores in the rows of its volumes."""
        self._conf.register_opt(_HOST, group=self.name)
        return f"{self._conf[self.name].backend_host or self._conf.host}@{self.name}"

    def load(self, check_names: bool = True) -> tuple[Backend, dict[str, Any]]:
        """Return the section's two drivers, and the values of its options.

        ``check_names``: not for another backend's section, whose options Cinder may
        not have registered in this process.

        :raises Misconfigured: an option is unknown or has a wrong value. The sentence
            names it.
        """
        try:
            chosen = self._read(OPTIONS)
            volumes = registry.volume_driver(chosen["lunshare_storage"])
            target = registry.target_driver(chosen["lunshare_target"])
            options = chosen | self._read([*volumes.OPTIONS, *target.OPTIONS])
            if check_names:
                self._check_names()
                self._check_alone(options)
                self._check_unguarded(options)
            root = Helper(options["lunshare_helper_socket"])
            backend = Backend(
                volumes(self.name, options, root), target(self.name, options, root)
            )
        except (cfg.Error, ValueError) as error:
            raise Misconfigured(
                f"section [{self.name}]: {error}", "correct it in cinder.conf"
            ) from error
        return backend, options

    def _read(self, options: Sequence[cfg.Opt]) -> dict[str, Any]:
        """Return values: of the section, else of backend_defaults, else the default."""
        for option in options:
            for group in (_SHARED, self.name):
                self._conf.register_opt(option, group=group)
            self._conf.set_default(option.dest, None, group=self.name)
            if option.dest == "target_ip_address":
                self._conf.set_default(option.dest, "$my_ip", group=_SHARED)
        self._known |= {option.dest for option in options}
        return {option.dest: self._value(option.dest) for option in options}

    def _value(self, name: str) -> Any:
        own = self._conf[self.name][name]
        return self._conf[_SHARED][name] if own is None else own

    def _check_names(self) -> None:
        """:raises Misconfigured: the section has an option that means nothing here."""
        for name in sorted(self._written()):
            foreign = name.replace("-", "_")
            if foreign in FOREIGN and foreign not in self._known:
                raise Misconfigured(
                    f"section [{self.name}]: {name} is not an option of lunshare",
                    FOREIGN[foreign],
                )
            if name not in self._known | set(self._cinder[self.name]):
                raise Misconfigured(
                    f"section [{self.name}]: {name}: no such option",
                    f"its drivers know {', '.join(sorted(self._known))}",
                )

    def _check_alone(self, options: Mapping[str, Any]) -> None:
        """:raises Misconfigured: Cinder's LVM driver serves the same targets."""
        for other in self._cinder.enabled_backends or ():
            texts = self._texts(_SHARED) | self._texts(other)
            if (
                other != self.name
                and texts.get("volume_driver", _PEER) == _PEER
                and texts.get("volume_group", _PEER_GROUP)
                == options.get("volume_group")
                and texts.get("target_prefix", _PEER_PREFIX)
                == options.get("target_prefix")
            ):
                raise Misconfigured(
                    f"section [{self.name}]: section [{other}] has Cinder's LVM driver"
                    " with the same volume_group and target_prefix",
                    "one of the two may serve them: see docs/fleet.md, From Cinder's"
                    " LVM driver",
                )

    def _check_unguarded(self, options: Mapping[str, Any]) -> None:
        """:raises Misconfigured: it asks for a firewall that nobody would keep."""
        for name in ("portal_firewall", "initiator_networks"):
            if options.get(name):
                raise Misconfigured(
                    f"section [{self.name}]: {name}: cinder-volume keeps no firewall,"
                    " and everybody reaches the portals",
                    "remove it, and keep other machines from the portals' network",
                )

    def _written(self) -> set[str]:
        """Return the names of the options that the files have in this section.

        oslo.config 10.7 ignores a name with a hyphen for an underscore.
        """
        return set(self._texts(self.name))

    def _texts(self, section: str) -> dict[str, str]:
        """Return what the files have in a section, as it is written."""
        texts: dict[str, str] = {}
        for file in self._files:
            sections: dict[str, dict[str, list[str]]] = {}
            cfg.ConfigParser(file, sections).parse()
            options = sections.get(section, {})
            texts |= {name: values[-1] for name, values in options.items()}
        return texts
