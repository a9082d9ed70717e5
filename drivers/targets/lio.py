# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LIO, the kernel's iSCSI target: one target for each volume, one ACL for each host.

This file turns values into verbs of the root helper and back. What is done to
the kernel, and in which order, is in lunshare.drivers.helper.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.base import Root, TargetDriver
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.values import (
    Connector,
    Disk,
    Export,
    LiveConnector,
    LiveExport,
    Mode,
    Portal,
    Volume,
    iscsi_name,
)

_LUN = 0


class LioTarget(TargetDriver):
    """The kernel enforces each host's mode (write_protect of its mapped LUN)."""

    CONTRACT: ClassVar[int] = 2
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities(
        enforces_read_only=True,
        fences=True,
        restricts_access=True,
        checks_credentials=True,
        observes=True,
        shows_growth=True,
    )

    OPTIONS: ClassVar[list[cfg.Opt]] = [
        cfg.StrOpt(
            "target_ip_address",
            default="127.0.0.1",
            help="Address that hosts log in to, IPv4 or IPv6. It must be one of"
            " this node's; a host is told this text. Change it only while"
            " nothing is attached: hosts keep the address they were told.",
        ),
        cfg.ListOpt(
            "target_secondary_ip_addresses",
            default=[],
            help="Further addresses of this node for multipath. With any, a host"
            " is told all of them and logs in to each.",
        ),
        cfg.PortOpt(
            "target_port",
            default=3260,
            help="TCP port of every address. Change it if another target"
            " program of this node holds 3260.",
        ),
        cfg.StrOpt(
            "target_prefix",
            default="iqn.2026-11.io.lunshare:",
            help="What the names of this node's targets begin with; 'volume-' and"
            " the volume's id follow. /etc/lunshare/helper.conf has to name the"
            " same. Targets under another prefix are not ours.",
        ),
        cfg.BoolOpt(
            "use_chap_auth",
            default=True,
            help="Whether a host must prove itself with a secret of its own"
            " (CHAP). Without it whoever uses a host's name has its access.",
        ),
        cfg.FloatOpt(
            "lio_deadline",
            default=30.0,
            min=1.0,
            help="Seconds that one change of a target may take. Closing an"
            " access waits for the host's writes under way, so this is how long"
            " a detach waits for a slow disk before it is reported as pending.",
        ),
    ]

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._deadline = float(options["lio_deadline"])
        self._prefix = str(options["target_prefix"]).lower()
        iscsi_name(f"{self._prefix}volume-{uuid.UUID(int=0)}", "target_prefix")
        addresses = [
            options["target_ip_address"],
            *options["target_secondary_ip_addresses"],
        ]
        self._portals = [Portal(each, options["target_port"]) for each in addresses]

    def check(self) -> None:
        problems = self.root.call("lio.check", timeout=self._deadline)
        if problems:
            raise Misconfigured("the iSCSI target", "; ".join(problems))

    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        names = None if only is None else {each.lower() for each in only}
        changes = self.root.call(
            "lio.apply",
            timeout=self._deadline,
            volume_id=export.volume_id,
            disk=_disk(export.disk),
            connectors=[
                self._connector(each)
                for each in export.connectors
                if names is None or each.initiator in names
            ],
            portals=[(portal.address, portal.port) for portal in self._portals],
            only=None if names is None else sorted(names),
        )
        return tuple(changes)

    def remove(self, volume_id: str) -> tuple[str, ...]:
        timeout = self._deadline
        return tuple(self.root.call("lio.remove", timeout=timeout, volume_id=volume_id))

    def observe(self) -> tuple[LiveExport, ...]:
        found = self.root.call("lio.observe", timeout=self._deadline)
        return tuple(_live(each) for each in found)

    def observe_volume(self, volume_id: str) -> LiveExport | None:
        timeout = self._deadline
        found = self.root.call("lio.live", timeout=timeout, volume_id=volume_id)
        return None if found is None else _live(found)

    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        portals = [str(portal) for portal in self._portals]
        iqn = self._prefix + volume.name
        told: dict[str, Any] = {
            "driver_volume_type": "iscsi",
            "target_discovered": False,
            "target_portal": portals[0],
            "target_iqn": iqn,
            "target_lun": _LUN,
            "volume_id": volume.id,
        }
        if len(portals) > 1:
            told["target_portals"] = portals
            told["target_iqns"] = [iqn] * len(portals)
            told["target_luns"] = [_LUN] * len(portals)
        if self._chap and connector.auth:
            told["auth_method"] = "CHAP"
            told["auth_username"] = connector.auth.username
            told["auth_password"] = connector.auth.password
        return told

    @property
    def abilities(self) -> TargetAbilities:
        return replace(self.ABILITIES, checks_credentials=self._chap)

    @property
    def _chap(self) -> bool:
        return bool(self.options["use_chap_auth"])

    def _connector(self, connector: Connector) -> list[Any]:
        """In the order that lunshare.drivers.helper.lio.target_requests takes them."""
        auth = connector.auth if self._chap else None
        return [
            connector.initiator,
            connector.mode,
            connector.attachment_id,
            auth and [auth.username, auth.password],
        ]


def _disk(disk: Disk | None) -> list[Any] | None:
    return None if disk is None else [disk.path, disk.size, disk.kind]


def _live(found: Mapping[str, Any]) -> LiveExport:
    connectors = (
        LiveConnector(initiator, mode and Mode(mode), tag, sessions, tuple(addresses))
        for initiator, mode, tag, sessions, addresses in found["connectors"]
    )
    return LiveExport(found["volume_id"], tuple(connectors), found["enabled"])
