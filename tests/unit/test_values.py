# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Values are checked when they are created."""

import pytest

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import (
    Auth,
    Connector,
    Disk,
    Export,
    Mode,
    Portal,
    Volume,
    iscsi_name,
    require_uuid,
)

UUID = "11111111-2222-4333-8444-555555555555"
IQN = "iqn.1994-05.com.example:host1"


@pytest.mark.parametrize(
    "name",
    [
        IQN,
        "iqn.2010-10.org.openstack:volume-x",
        "iqn.1994-05.com.example",
        "naa.52004567ba64678d",
        "naa.62004567ba64678d0123456789abcdef",
        "eui.02004567a425678d",
        IQN + "a" * (223 - len(IQN)),
    ],
)
def test_iscsi_names_are_accepted(name):
    assert iscsi_name(name) == name


def test_iscsi_names_become_lower_case():
    assert iscsi_name(IQN.upper()) == IQN
    assert Connector(IQN.upper(), Mode.RO).initiator == IQN


@pytest.mark.parametrize(
    "name",
    [
        "",
        None,
        7,
        "host1",
        "iqn.2026-13.com.example:host1",
        "iqn.2026-11.test:host1",
        "iqn.1994-05.com.example:a/b",
        "iqn.1994-05.com.example:a b",
        "iqn.1994-05.com.example:a,b",
        IQN + "\n",
        "naa.5200",
        "iqn.1994-05.com.example:ü",
        "iqn.1994-05.com.example:a\x1b[31m",
        "iqn.\u0661\u0669\u0669\u0664-05.com.example:a",
        "iqn.1994-05.com.example:\u212a",
        "eui.02004567a425678g",
        IQN + "a" * (224 - len(IQN)),
        "../" + IQN,
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(InvalidValue, match="give an iSCSI name"):
        iscsi_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "x",
        UUID.replace("-", ""),
        "{" + UUID + "}",
        UUID.upper() + " ",
        "ABCDEF11-2222-4333-8444-555555555555",
        "../" + UUID,
        UUID + "\n",
    ],
)
def test_volume_id_must_be_a_canonical_uuid(text):
    for refuse in (require_uuid, lambda t: Volume(t, 1), Export):
        with pytest.raises(InvalidValue, match="canonical"):
            refuse(text)


def test_volume_name_is_derived_from_its_id():
    assert Volume(UUID, 1).name == f"volume-{UUID}"


def test_export_needs_a_disk_only_with_hosts():
    connectors = (Connector(IQN, Mode.RW),)
    with pytest.raises(InvalidValue, match="disk"):
        Export(UUID, None, connectors)
    assert Export(UUID, Disk(UUID, "/dev/x", 1), connectors).connectors == connectors
    assert Export(UUID).connectors == ()


def test_password_is_not_in_repr_or_str():
    auth = Auth("user", "hidden-word")
    connector = Connector(IQN, Mode.RW, auth=auth)
    export = Export(UUID, Disk(UUID, "/dev/x", 1), (connector,))
    for value in (auth, connector, export):
        assert "hidden-word" not in repr(value) + str(value)


@pytest.mark.parametrize(
    ("address", "port", "text"),
    [
        ("192.0.2.1", 3260, "192.0.2.1:3260"),
        ("2001:db8::1", 3261, "[2001:db8::1]:3261"),
        ("2001:0db8:0::1", 3260, "[2001:db8::1]:3260"),
    ],
)
def test_portal_prints_as_address_and_port(address, port, text):
    assert str(Portal(address, port)) == text


@pytest.mark.parametrize(
    ("address", "port"),
    [("storage1", 3260), ("", 3260), ("192.0.2.1", 0), ("192.0.2.1", 65536)],
)
def test_other_portals_are_refused(address, port):
    with pytest.raises(InvalidValue, match="portal"):
        Portal(address, port)
