# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LioTarget: connection_info, requests to the helper, and options. No I/O."""

from __future__ import annotations

import socket
from typing import Any

import psutil
import pytest

from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import Auth, Connector, Disk, Export, Mode, Volume

VOLUME = Volume("0a1b2c3d-0000-4000-8000-000000000001", 1024)
IQN = f"iqn.2026-11.io.lunshare:{VOLUME.name}"
HOST = Connector("iqn.1994-05.com.example:h1", Mode.RO, "a", Auth("user", "secret"))


class RecordingRoot(NoRoot):
    """Records the requests to the helper."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        self.requests.append({"verb": verb, **arguments})
        return []


def driver(**changed: Any) -> LioTarget:
    options = {each.dest: each.default for each in LioTarget.OPTIONS} | changed
    return LioTarget("lvm", options, NoRoot())


def test_connection_info_with_one_portal() -> None:
    assert driver(target_ip_address="127.0.0.2").connection_info(VOLUME, HOST) == {
        "driver_volume_type": "iscsi",
        "target_discovered": False,
        "target_portal": "127.0.0.2:3260",
        "target_iqn": IQN,
        "target_lun": 0,
        "volume_id": VOLUME.id,
        "auth_method": "CHAP",
        "auth_username": "user",
        "auth_password": "secret",
    }


def test_connection_info_with_several_portals_has_lists() -> None:
    info = driver(
        target_ip_address="::1",
        target_secondary_ip_addresses=["127.0.0.2"],
        target_port=3261,
    ).connection_info(VOLUME, HOST)
    assert info["target_portal"] == "[::1]:3261"
    assert info["target_portals"] == ["[::1]:3261", "127.0.0.2:3261"]
    assert info["target_iqns"] == [IQN, IQN]
    assert info["target_luns"] == [0, 0]


def test_apply_sends_only_the_hosts_in_only() -> None:
    root = RecordingRoot()
    options = {each.dest: each.default for each in LioTarget.OPTIONS}
    names = [f"iqn.1994-05.com.example:h{number}" for number in range(1000)]
    hosts = tuple(Connector(name, Mode.RW) for name in names)
    target = LioTarget("lvm", options, root)
    wanted = Export(VOLUME.id, Disk(VOLUME.id, "/dev/group/volume", 1024), hosts)
    target.apply(wanted, only={names[7].upper()})
    target.apply(wanted, only={"iqn.1994-05.com.example:absent"})
    one, none = root.requests
    [host] = one["connectors"]
    assert one["only"] == [host["initiator"]] == [names[7]]
    assert none["connectors"] == []


@pytest.mark.parametrize("use_chap_auth", [True, False])
def test_connection_info_has_credentials_only_with_chap(use_chap_auth: bool) -> None:
    target = driver(use_chap_auth=use_chap_auth)
    plain = Connector(HOST.initiator, Mode.RW)
    assert ("auth_password" in target.connection_info(VOLUME, HOST)) == use_chap_auth
    assert "auth_password" not in target.connection_info(VOLUME, plain)


@pytest.mark.parametrize(
    "changed",
    [
        {"target_ip_address": "storage.example"},
        {"target_secondary_ip_addresses": ["192.0.2.300"]},
        {"target_prefix": "lunshare:"},
        {"target_prefix": "iqn.2026-11.io.lunshare/"},
    ],
)
def test_invalid_option_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        driver(**changed)


@pytest.mark.parametrize("option", ["target_ip_address", "target_secondary"])
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0.0.0.0", "name one address of this node"),
        ("::", "name one address of this node"),
        ("192.0.2.1", "this node does not have it: configure it, or name one"),
        ("2001:db8::1", "this node does not have it: configure it, or name one"),
    ],
)
def test_a_portal_is_on_an_address_of_this_node(
    option: str, address: str, why: str
) -> None:
    value: Any = address
    if option == "target_secondary":
        option, value = "target_secondary_ip_addresses", ["127.0.0.1", address]
    with pytest.raises(InvalidValue) as refused:
        driver(**{option: value})
    assert f"{option} {address!r} is not valid: " in str(refused.value)
    assert why in str(refused.value)


def test_every_address_of_this_node_is_accepted() -> None:
    addresses = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
        and "%" not in entry.address
    ]
    first, *more = addresses
    target = driver(target_ip_address=first, target_secondary_ip_addresses=more)
    info = target.connection_info(VOLUME, HOST)
    assert info["target_portal"].rpartition(":")[0].strip("[]") == first
    assert len(info.get("target_portals", [first])) == len(addresses)
