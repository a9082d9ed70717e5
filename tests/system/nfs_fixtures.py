# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the NFS tests: one server and one helper for a module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.conformance.fixtures import MIB
from lunshare.drivers.nfs import NfsVolumes
from tests.conformance.nfs_kit import ShareFixtures, share_options
from tests.system.lio_node import HelperProcess, run
from tests.system.nfs_server import BASE, NfsServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NfsServer]:
    made = NfsServer(tmp_path_factory.mktemp("nfs"))
    yield made
    made.close()


# Not that of lio_fixtures: a plugin that was imported before is an error of pytest.
@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelperProcess]:
    process = HelperProcess(tmp_path_factory.mktemp("helper"))
    yield process
    process.stop()


@pytest.fixture(scope="module")
def root(helper: HelperProcess) -> Root:
    return helper.client()


class NfsFixtures(ShareFixtures):
    """A share of a real server, on a filesystem that clones files."""

    metadata_size = MIB
    #: tests/conformance/test_nfs.py has more: here 110 take 20 seconds.
    many_volumes = 6
    server: NfsServer

    @pytest.fixture
    def point(self, server: NfsServer, root: Root) -> Path:
        self.__class__.share = server.share
        self.__class__.server = server
        NfsVolumes("kit", share_options(server.share, str(BASE)), root).check()
        return Path(server.share.point(str(BASE)))

    @pytest.fixture
    def full_pool(
        self, server: NfsServer
    ) -> Callable[[], AbstractContextManager[None]]:
        return server.full

    def wipe_deleted(self, driver: VolumeDriver) -> None:
        self.server.wait_for_free_space()

    @contextlib.contextmanager
    def failing_storage(self, driver: VolumeDriver, reads: bool) -> Iterator[None]:
        """The server's disk fails. At the end the share is not mounted.

        Else each fsync of a file with a failed write fails, also when the disk works
        again, until the share is mounted again (Linux 6.12, 17 attempts in 16 s).
        """
        with self.server.failing("error" if reads else "error_writes"):
            yield
        run("umount", self.share.point(str(BASE)))

    def reboot(self, driver: VolumeDriver) -> None:
        run("umount", self.share.point(str(BASE)))
