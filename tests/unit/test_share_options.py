# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""NFS shares as operators write them: valid lines, and errors for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.share_options import OPTIONS, Share, configured


def options(**given: Any) -> dict[str, Any]:
    return {option.dest: option.default for option in OPTIONS} | given


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shares"


def read(file: Path, *lines: str) -> tuple[Share, ...]:
    file.write_text("\n".join(lines) + "\n")
    return configured(options(nfs_shares_config=str(file)))


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("nas:/srv/a", Share("nas", "/srv/a")),
        ("  nas.example.com:/srv/a/  ", Share("nas.example.com", "/srv/a")),
        ("192.0.2.1:/", Share("192.0.2.1", "/")),
        ("[2001:db8::1]:/srv/a", Share("[2001:db8::1]", "/srv/a")),
        (
            r"nas:/with\040blank\134 -o vers=4.2,hard",
            Share("nas", "/with blank\\", "vers=4.2,hard"),
        ),
        ("nas:/a#b,c=d", Share("nas", "/a#b,c=d")),
        ("nas:/a\t-o\tsec=krb5p", Share("nas", "/a", "sec=krb5p")),
    ],
)
def test_line_is_parsed_as_a_share(file: Path, line: str, share: Share) -> None:
    assert read(file, "# our filers", "", line) == (share,)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nas", "':/'"),
        ("nas:srv", "':/'"),
        (":/srv", "host ''"),
        ("-oro:/srv", "host '-oro'"),
        ("fe80::1:/srv", "host 'fe80::1'"),
        ("na;s:/srv", "host"),
        ("nas:/srv/../etc", "path"),
        ("nas:/srv//a", "path"),
        (r"nas:/srv\012x", "path"),
        ("nas:/s\N{LATIN SMALL LETTER E WITH ACUTE}", "path"),
        ("nas:/srv vers=4.2", "is not a share"),
        ("nas:/with blank", "is not a share"),
        ("nas:/srv -o", "is not a share"),
        ("nas:/srv -o vers=4.2 hard", "is not a share"),
        ("nas:/srv -o vers=4.2,,hard", "mount option ''"),
        ("nas:/srv -o suid", "mount option 'suid'"),
        ("nas:/srv -o bind", "mount option 'bind'"),
        ("nas:/srv -o remount", "mount option"),
        ("nas:/srv -o X-mount.owner=me", "mount option"),
        ("nas:/srv -o vers=4.2;id", "mount option"),
        ("nas:/srv -o nolock", "hides from this node"),
        ("nas:/srv -o vers=3,local_lock=all", "hides from this node"),
        ("nas:/srv -o local_lock=posix", "hides from this node"),
        ("nas:/srv -o local_lock=flock", "hides from this node"),
    ],
)
def test_error_names_the_number_of_a_bad_line(file: Path, line: str, why: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        read(file, "# comment", "nas:/first", line)
    assert str(raised.value).startswith(f"nfs_shares_config {file}, line 3: ")
    assert why in raised.value.what
    assert raised.value.remedy


def test_share_that_is_listed_twice_is_refused(file: Path) -> None:
    with pytest.raises(Misconfigured, match="line 2: nas:/a is listed twice"):
        read(file, "nas:/a", "nas:/a/ -o hard")


def test_file_without_shares_is_refused(file: Path) -> None:
    with pytest.raises(Misconfigured, match="names no share"):
        read(file, "# none yet")


def test_error_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"nfs_shares_config .*: No such file"):
        configured(options(nfs_shares_config=str(tmp_path / "none")))


def test_error_names_a_file_that_is_not_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="it is not a text file"):
        configured(options(nfs_shares_config=str(file)))


def test_share_from_three_options() -> None:
    given = {"nas_host": "2001:db8::1", "nas_share_path": "/with blank"}
    wanted = Share("[2001:db8::1]", "/with blank", "vers=4.2,hard")
    for mount in ("vers=4.2,hard", "-o vers=4.2,hard"):
        assert configured(options(**given, nas_mount_options=mount)) == (wanted,)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "no NFS share is configured"),
        ({"nas_host": "nas"}, "nas_share_path"),
        ({"nas_host": "nas", "nas_share_path": "srv"}, "path 'srv'"),
        ({"nas_host": "nas", "nfs_shares_config": "/f"}, "both set"),
        ({"nas_host": "n", "nas_share_path": "/", "nas_mount_options": "ro"}, "'ro'"),
    ],
)
def test_options_that_name_no_share_are_refused(
    given: dict[str, Any], why: str
) -> None:
    with pytest.raises(Misconfigured, match=why):
        configured(options(**given))


def test_mount_point_does_not_depend_on_mount_options() -> None:
    one, two = Share("nas", "/a", "vers=4.1"), Share("nas", "/a", "vers=4.2")
    assert one.point("/mnt/") == two.point("/mnt") != Share("nas", "/b").point("/mnt")
