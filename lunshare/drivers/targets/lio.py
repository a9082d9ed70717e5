# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LIO, the kernel's iSCSI target: one target for each volume, one ACL for each host.

This file converts values to requests of the root helper, and its results to values.
lunshare.helper.lio changes the kernel's configuration, in a safe order.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.base import Root, TargetDriver
from lunshare.drivers.drifts import Drift, DriftKind
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.lio import live_exports
from lunshare.drivers.lio.own_portals import own_portal
from lunshare.drivers.lio.portal_firewall import PortalFirewall
from lunshare.drivers.values import (
    Connector,
    Disk,
    Export,
    LiveConnector,
    LiveExport,
    PortalGuard,
    PortalHost,
    Registration,
    Volume,
    iscsi_name,
)

_LUN = 0
# A comparison only reads, so one that takes longer hangs.
_READ_SECONDS, _HOST_SECONDS = 5.0, 0.01
# One host, for an answer that says as well that it was not read in time.
_SHOW_SECONDS = 1.0


class LioTarget(TargetDriver):
    """The kernel enforces each host's mode (write_protect of its mapped LUN)."""

    CONTRACT: ClassVar[int] = 2
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities(
        enforces_read_only=True,
        fences=True,
        restricts_access=True,
        checks_credentials=True,
        observes=True,
        compares=True,
        shows_growth=True,
    )

    OPTIONS: ClassVar[list[cfg.Opt]] = [
        cfg.StrOpt(
            "target_ip_address",
            default="127.0.0.1",
            help="Address that hosts log in to, IPv4 or IPv6. It must be an address of"
            " this node. Change it only while no volume is attached: hosts keep the"
            " address that they got at attach.",
        ),
        cfg.ListOpt(
            "target_secondary_ip_addresses",
            default=[],
            help="More addresses of this node, for multipath. A host gets all addresses"
            " and logs in to each.",
        ),
        cfg.PortOpt(
            "target_port",
            default=3260,
            help="TCP port of every address: 860, or 1024 and above. Change it if"
            " another target program of this node uses 3260.",
        ),
        cfg.StrOpt(
            "target_prefix",
            default="iqn.2026-11.io.lunshare:",
            help="Prefix of the names of this node's targets; 'volume-' and the"
            " volume's id follow. Name the same prefix in /etc/lunshare/helper.conf."
            " Targets with another prefix are foreign, and are not touched.",
        ),
        cfg.BoolOpt(
            "use_chap_auth",
            default=True,
            help="Whether a host must log in with its own secret (CHAP). Without it,"
            " any host that uses the initiator name of another has its access.",
        ),
        cfg.BoolOpt(
            "portal_firewall",
            help="Whether only hosts with an attachment can open a connection to the"
            " portals: those at the ip of their connector, and all in"
            " initiator_networks. The root helper keeps the nftables table"
            " 'inet lunshare' for that. Connections that exist are not ended. Without a"
            " value it does so where the node has nftables, unless a host that is"
            " attached already would be locked out; the log and"
            " /v3/lunshare/health then say which. With true the backend is down where"
            " the node has none. Only lunshared does this; cinder-volume admits"
            " everybody.",
        ),
        cfg.ListOpt(
            "initiator_networks",
            default=[],
            help="Networks from which any host may connect to the portals, such as"
            " 192.0.2.0/24. Needed with portal_firewall where the ip of a host's"
            " connector (for Nova: my_ip) is not the address from which it connects,"
            " and for all paths but one of a host with several.",
        ),
        cfg.FloatOpt(
            "lio_deadline",
            default=30.0,
            min=1.0,
            help="Seconds that one change of a target may take. To close an access, the"
            " target waits for the host's writes in progress. So this is how long a"
            " detach waits for a slow disk before it is reported as pending.",
        ),
    ]

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._deadline = float(options["lio_deadline"])
        self._prefix = str(options["target_prefix"]).lower()
        iscsi_name(f"{self._prefix}volume-{uuid.UUID(int=0)}", "target_prefix")
        addresses = {
            "target_ip_address": [options["target_ip_address"]],
            "target_secondary_ip_addresses": options["target_secondary_ip_addresses"],
        }
        self._portals = [
            own_portal(option, address, options["target_port"])
            for option, values in addresses.items()
            for address in values
        ]
        self._firewall = PortalFirewall(
            name, options, root, portals=self._portals, observe=self.observe
        )

    def check(self) -> None:
        problems = self.root.call(
            "lio.check", timeout=self._deadline, prefix=self._prefix
        )
        if problems:
            raise Misconfigured("the iSCSI target", "; ".join(problems))
        self._firewall.check()

    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        names = None if only is None else {initiator.lower() for initiator in only}
        fields = self._wanted(export, names)
        return tuple(self.root.call("lio.apply", timeout=self._deadline, **fields))

    def compare(self, export: Export) -> tuple[Drift, ...]:
        fields = self._wanted(export)
        timeout = _READ_SECONDS + _HOST_SECONDS * len(export.connectors)
        drifts = self.root.call("lio.compare", timeout=timeout, **fields)
        return tuple(
            Drift(DriftKind(drift["kind"]), drift["what"], drift["initiator"])
            for drift in drifts
        )

    def remove(self, volume_id: str) -> tuple[str, ...]:
        timeout = self._deadline
        return tuple(self.root.call("lio.remove", timeout=timeout, volume_id=volume_id))

    def observe(self) -> tuple[LiveExport, ...]:
        exports = self.root.call("lio.observe", timeout=self._deadline)
        return tuple(live_exports.live_export(export) for export in exports)

    @property
    def listing(self) -> object:
        return LioTarget, self._prefix

    def observe_volume(self, volume_id: str) -> LiveExport | None:
        timeout = self._deadline
        export = self.root.call("lio.live", timeout=timeout, volume_id=volume_id)
        return None if export is None else live_exports.live_export(export)

    def observe_host(self, volume_id: str, initiator: str) -> LiveConnector | None:
        fields = {"volume_id": volume_id, "initiator": initiator}
        connector = self.root.call("lio.host", timeout=_SHOW_SECONDS, **fields)
        return connector and live_exports.live_connector(connector)

    def registrations(self, volume_id: str) -> tuple[Registration, ...]:
        verb, timeout = "lio.registrations", self._deadline
        records = self.root.call(verb, timeout=timeout, volume_id=volume_id)
        return live_exports.registrations(records)

    @property
    def guards_portals(self) -> bool:
        return self._firewall.guards

    @property
    def needs_addresses(self) -> bool:
        return self._firewall.needs_addresses

    @property
    def portal_guard(self) -> PortalGuard | None:
        return self._firewall.guard

    def admit(self, address: str, wanted: bool) -> bool:
        return self.admit_each({address: wanted})

    def admit_each(self, addresses: Mapping[str, bool]) -> bool:
        return self._firewall.admit_each(addresses)

    def admit_all(self, hosts: Collection[PortalHost]) -> tuple[str, ...]:
        return self._firewall.admit_all(hosts)

    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        portals = [str(portal) for portal in self._portals]
        iqn = self._prefix + volume.name
        info: dict[str, Any] = {
            "driver_volume_type": "iscsi",
            "target_discovered": False,
            "target_portal": portals[0],
            "target_iqn": iqn,
            "target_lun": _LUN,
            "volume_id": volume.id,
        }
        if len(portals) > 1:
            info["target_portals"] = portals
            info["target_iqns"] = [iqn] * len(portals)
            info["target_luns"] = [_LUN] * len(portals)
        if self._chap and connector.auth:
            info["auth_method"] = "CHAP"
            info["auth_username"] = connector.auth.username
            info["auth_password"] = connector.auth.password
        return info

    @property
    def abilities(self) -> TargetAbilities:
        return replace(self.ABILITIES, checks_credentials=self._chap)

    @property
    def _chap(self) -> bool:
        return bool(self.options["use_chap_auth"])

    def _wanted(
        self, export: Export, names: Collection[str] | None = None
    ) -> dict[str, Any]:
        """The fields that lunshare.helper.lio.target_requests checks."""
        return {
            "volume_id": export.volume_id,
            "disk": _disk(export.disk),
            "connectors": [
                self._connector(connector)
                for connector in export.connectors
                if names is None or connector.initiator in names
            ],
            "portals": [asdict(portal) for portal in self._portals],
            "only": None if names is None else sorted(names),
            "reservations": export.reservations,
        }

    def _connector(self, connector: Connector) -> dict[str, Any]:
        auth = connector.auth if self._chap else None
        return {
            "initiator": connector.initiator,
            "mode": connector.mode,
            "attachment_id": connector.attachment_id,
            "auth": auth and {"username": auth.username, "password": auth.password},
        }


def _disk(disk: Disk | None) -> dict[str, Any] | None:
    if disk is None:
        return None
    return {"path": disk.path, "size": disk.size, "kind": disk.kind}
