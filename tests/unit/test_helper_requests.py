# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The arguments of lio.apply: every name in them becomes a path that root writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.errors import InvalidValue, TargetFailed
from lunshare.drivers.protocol import messages
from lunshare.drivers.values import (
    Auth,
    Connector,
    Disk,
    DiskKind,
    Export,
    Mode,
    Portal,
)
from lunshare.helper import disk_paths, requests
from lunshare.helper.lio import target_requests

ID = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
HOST = "iqn.1994-05.com.example:host1"
SECRET = "a-secret-that-never-shows"


def disk(path: str, size: object = 1024, kind: str = "block") -> dict[str, Any]:
    return {"path": path, "size": size, "kind": kind}


def portal(address: str, port: object) -> dict[str, Any]:
    return {"address": address, "port": port}


def auth(username: str, password: str) -> dict[str, str]:
    return {"username": username, "password": password}


def one(*fields: Any) -> dict[str, Any]:
    names = ("initiator", "mode", "attachment_id", "auth")
    return {"connectors": [dict(zip(names, fields, strict=False))]}


def document(**changed: Any) -> dict[str, Any]:
    return {
        "volume_id": ID,
        "disk": disk(f"/dev/vg/volume-{ID}"),
        **one(HOST, "rw", "attachment-1", auth("user", SECRET)),
        "portals": [portal("192.0.2.1", 3260), portal("2001:db8::1", 3261)],
        "only": [HOST],
        "reservations": False,
    } | changed


def test_a_wanted_export_becomes_values() -> None:
    wanted = target_requests.apply(document())
    disk = Disk(ID, f"/dev/vg/volume-{ID}", 1024)
    connector = Connector(HOST, Mode.RW, "attachment-1", Auth("user", SECRET))
    assert wanted.export == Export(ID, disk, (connector,))
    assert wanted.portals == (Portal("192.0.2.1"), Portal("2001:db8::1", 3261))
    assert wanted.only == (HOST,)


@pytest.mark.parametrize("port", [860, 1024, 65535])
def test_ports_of_iscsi_and_those_that_any_user_may_have_are_accepted(
    port: int,
) -> None:
    wanted = target_requests.apply(document(portals=[portal("192.0.2.1", port)]))
    assert wanted.portals == (Portal("192.0.2.1", port),)


def test_close_needs_no_disk() -> None:
    wanted = target_requests.apply(document(disk=None, connectors=[], only=None))
    assert wanted.export == Export(ID)
    assert wanted.only is None


@pytest.mark.parametrize(
    "changed",
    [
        {"volume_id": "../" + ID},
        {"volume_id": ID.upper()},
        {"volume_id": None},
        {"disk": disk("/dev/sda", "1024")},
        {"disk": disk("/dev/sda", 1024.0)},
        {"disk": disk("/dev/sda", 2**63)},
        {"disk": disk("/dev/sda") | {"more": 1}},
        {"disk": disk("/dev/sda", kind="tape")},
        {"disk": disk("/dev/vg/a\nb")},
        {"disk": ["/dev/sda", 1024, "block"]},
        {"disk": "/dev/sda"},
        {"disk": None},
        {"connectors": None},
        {"connectors": one(HOST, "rw", "a", None)["connectors"] * 2},
        one(HOST, "rw", "a"),
        one("../../../tpgt_1", "rw", "a", None),
        one("iqn.1994-05.com.example:a/b", "rw", "a", None),
        one("iqn.1994-05.com.example:a\0", "rw", "a", None),
        one("iqn.1994-05.com.example:\u00fc", "rw", "a", None),
        one("iqn.1994-05.com.example:" + "a" * 200, "rw", "a", None),
        one(HOST, "rwx", "a", None),
        one(HOST, "", "a", None),
        one(HOST, None, "a", None),
        one(HOST, "rw", "a\nb", None),
        one(HOST, "rw", "NULL", None),
        one(HOST, "rw", "a" * 64, None),
        one(HOST, "rw", "(fencing)", None),
        one(HOST, "rw", "a", auth("NULL", SECRET)),
        one(HOST, "rw", "a", auth("user", "NULL" + SECRET)),
        one(HOST, "rw", "a", auth("user", SECRET + "\n")),
        one(HOST, "rw", "a", auth("user", "")),
        one(HOST, "rw", "a", auth("user", SECRET * 20)),
        one(HOST, "rw", "a", ["user", SECRET]),
        one(HOST, "rw", "a", {"username": "user"}),
        one(HOST, "rw", "a", auth("user", SECRET) | {SECRET: "x"}),
        one(HOST, "rw", "a", SECRET),
        {"portals": [portal("host.example", 3260)]},
        {"portals": [portal("fe80::1%eth0/..", 3260)]},
        {"portals": [portal("192.0.2.1", 0)]},
        {"portals": [portal("192.0.2.1", True)]},
        {"portals": [portal("0.0.0.0", 22)]},
        {"portals": [portal("192.0.2.1", 1023)]},
        {"portals": [portal("192.0.2.1", 3260)] * 17},
        {"only": ["../x"]},
        {"only": HOST},
        {"more": 1},
    ],
)
def test_wrong_request_is_refused_and_shows_no_secret(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        target_requests.apply(document(**changed))
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(vars(caught.value))


def test_lists_are_refused_beyond_their_limits() -> None:
    portals = [portal(f"192.0.2.{number}", 3260) for number in range(1, 18)]
    hosts = [
        one(f"iqn.1994-05.com.example:h{number}", "ro", "a", None)["connectors"][0]
        for number in range(target_requests.MAX_CONNECTORS + 1)
    ]
    most = target_requests.apply(document(portals=portals[:16], connectors=hosts[:-1]))
    assert (len(most.portals), len(most.export.connectors)) == (16, 10_000)
    with pytest.raises(InvalidValue, match=r"portals '17 values' .* at most 16"):
        target_requests.apply(document(portals=portals))
    with pytest.raises(InvalidValue, match=r"connectors '10001 values' .* most 10000"):
        target_requests.apply(document(connectors=hosts))


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize("given", [nested(300), "x" * 5000, {"x": "y" * 5000}, 5])
def test_a_refusal_does_not_repeat_what_was_sent(given: object) -> None:
    """Deep lists exceeded the recursion limit of the answer, a fault of the helper."""
    lists = {"only": [given]}, {"portals": [given]}, {"portals": given}
    for changed in (one(given, "rw", "a", None), *lists):
        with pytest.raises(InvalidValue) as caught:
            target_requests.apply(document(**changed))
        assert len(str(caught.value)) < 100


def test_a_refusal_names_the_field_with_its_path() -> None:
    hosts = (
        document()["connectors"]
        + one("iqn.1994-05.com.example:h", 5, "", None)["connectors"]
    )
    with pytest.raises(InvalidValue, match=r"connectors\[1\].mode 'int' .* ro, rw"):
        target_requests.apply(document(connectors=hosts))
    with pytest.raises(InvalidValue, match=r"disk .* give exactly: path, size, kind"):
        target_requests.apply(document(disk={"path": "/dev/vg/x"}))


def test_a_request_does_not_print_its_secrets() -> None:
    message = messages.request("lio.apply", 1, document())
    assert SECRET not in repr(requests.request(message))
    assert SECRET not in repr(target_requests.apply(document()))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (DiskKind.BLOCK, "/dev/sda"),
        (DiskKind.BLOCK, "/dev/null"),
        (DiskKind.BLOCK, f"/dev/vg/../volume-{ID}"),
        (DiskKind.BLOCK, f"/dev/../volume-{ID}"),
        (DiskKind.BLOCK, f"/dev/vg/volume-{OTHER}"),
        (DiskKind.BLOCK, f"/dev/vg/volume-{ID}.new"),
        (DiskKind.BLOCK, f"/dev/mapper/vg-volume-{ID}"),
        (DiskKind.BLOCK, f"/tmp/volume-{ID}"),
        (DiskKind.FILE, "/etc/shadow"),
        (DiskKind.FILE, f"volume-{ID}"),
        (DiskKind.FILE, f"/tmp/volume-{OTHER}"),
        (DiskKind.FILE, f"/tmp/volume-{ID}/../volume-{ID}"),
        (DiskKind.FILE, f"/tmp/volume-{ID}.."),
        (DiskKind.FILE, f"/dev/volume-{ID}"),
    ],
)
def test_a_path_that_is_not_the_volumes_is_refused(kind: DiskKind, path: str) -> None:
    with pytest.raises(TargetFailed):
        disk_paths.check(Disk(ID, path, 1024, kind))


def test_kernel_gets_the_file_that_was_checked(tmp_path: Path) -> None:
    """Others may change a share's directory; the descriptor stays where it was."""
    path = tmp_path / f"volume-{ID}"
    path.write_bytes(b"the volume's")
    with disk_paths.open_disk(Disk(ID, str(path), 12, DiskKind.FILE)) as found:
        path.rename(tmp_path / "moved")
        path.symlink_to("/etc/shadow")
        assert Path(found.path).read_bytes() == b"the volume's"
        assert found.stat.st_ino == (tmp_path / "moved").stat().st_ino
    assert not Path(found.path).exists()


def test_links_in_the_path_of_a_file_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / f"volume-{ID}").write_bytes(bytes(1024))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for way, refused in (("real", False), ("link", True)):
        disk = Disk(ID, str(tmp_path / way / f"volume-{ID}"), 1024, DiskKind.FILE)
        if refused:
            with pytest.raises(TargetFailed, match="Not a directory"):
                disk_paths.check(disk)
        else:
            assert disk_paths.check(disk).st_size == 1024


def test_file_must_be_regular_with_one_name(tmp_path: Any) -> None:
    path = tmp_path / f"volume-{ID}"
    disk = Disk(ID, str(path), 1024, DiskKind.FILE)
    path.write_bytes(bytes(1024))
    assert disk_paths.check(disk).st_size == 1024
    (tmp_path / "second").hardlink_to(path)
    with pytest.raises(TargetFailed, match="one name"):
        disk_paths.check(disk)
    (tmp_path / "second").unlink()
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(TargetFailed, match="not a regular file"):
        disk_paths.check(disk)
    path.unlink()
    path.mkdir()
    with pytest.raises(TargetFailed, match="regular file"):
        disk_paths.check(disk)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"portals": [portal("192.0.2.1", 3260), portal("1.2.3", 3260)]}, "portals[1]"),
        ({"portals": [portal("host.example", 3260)]}, "portals[0].address"),
        ({"only": [HOST, 5]}, "only[1]"),
        ({"connectors": [5]}, "connectors[0]"),
        ({"disk": {"path": "/dev/vg/a", "size": -1, "kind": "block"}}, "disk.size"),
    ],
)
def test_a_refusal_has_the_name_of_the_field(
    changed: dict[str, Any], name: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        target_requests.apply(document(**changed))
    assert caught.value.name == name
