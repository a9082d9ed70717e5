# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A node whose shares are directories, and the NFS driver on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.conformance.fixtures import MIB, defaults
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.share_options import Share
from tests.conformance.directory_shares import Directories, Node, ShareHelper

ONE, TWO = Share("nas", "/srv/one"), Share("filer", "/srv/two")


@pytest.fixture
def mounts() -> Directories:
    return Directories(64 * MIB)


@pytest.fixture
def node(tmp_path: Path, mounts: Directories) -> Iterator[Node]:
    helper = ShareHelper(tmp_path / "helper.sock", mounts)
    yield Node(helper.client, mounts)
    helper.end()


@pytest.fixture
def build(tmp_path: Path, node: Node) -> Callable[..., NfsVolumes]:
    """Return a function that builds the driver on these shares and options."""

    def build_driver(*shares: Share, **given: Any) -> NfsVolumes:
        lines = [f"{share.source} -o vers=4.2\n" for share in shares or (ONE,)]
        file = tmp_path / "shares"
        file.write_text("".join(lines))
        base = {"nfs_mount_point_base": str(tmp_path / "mnt"), "nfs_clone": False}
        return NfsVolumes(
            "test",
            defaults(NfsVolumes, nfs_shares_config=str(file), **base | given),
            node,
        )

    return build_driver


@pytest.fixture
def driver(build: Callable[..., NfsVolumes]) -> NfsVolumes:
    driver = build()
    driver.check()
    return driver


@pytest.fixture
def files(tmp_path: Path, driver: NfsVolumes) -> Path:
    """The directory with the files of the share."""
    return tmp_path / "mnt" / ONE.digest
