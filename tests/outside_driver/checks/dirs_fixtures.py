# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fixtures that bind the kit to this driver."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.conformance import block_io
from lunshare.drivers.conformance.fixtures import MIB, VolumeFixtures, defaults
from lunshare.drivers.conformance.root import OwnRoot
from lunshare.drivers.values import GIB, Volume
from lunshare_dirs.driver import DirsVolumes

FILTERS = Path(__file__).parents[1] / "rootwrap.d" / "dirs.filters"
POOL = 64 * MIB


POOL_PATH = "/var/lib/lunshare-dirs"


def filters_for(pool: Path | str, directory: Path) -> str:
    """Install the shipped filters for files in that pool, as on a node."""
    directory.mkdir(mode=0o755)
    filters = directory / FILTERS.name
    filters.write_text(FILTERS.read_text().replace(POOL_PATH, str(pool)))
    filters.chmod(0o644)
    return str(directory)


class DirsFixtures(VolumeFixtures):
    """An empty directory for each test."""

    @pytest.fixture
    def pool(self, tmp_path: Path) -> Iterator[Path]:
        """The directory: its own file system, if this user can mount one.

        The kernel reports ENOSPC then. Otherwise only the driver's own count fills the
        pool, and the summary names what was not tried.
        """
        pool = tmp_path / "pool"
        pool.mkdir(mode=0o755)
        with contextlib.suppress(PermissionError):
            block_io.mount_small(str(pool), POOL)
        yield pool
        block_io.unmount_small(str(pool))

    @pytest.fixture
    def build(self, pool: Path, tmp_path: Path) -> Callable[[], VolumeDriver]:
        root: Root = OwnRoot(filters_for(pool, tmp_path / "rootwrap.d"))
        given = {"dirs_path": str(pool), "dirs_capacity_gb": POOL / GIB}
        options = defaults(DirsVolumes, **given)
        return lambda: DirsVolumes("kit", options, root)

    @pytest.fixture
    def misconfigured(self, build: Callable[[], VolumeDriver]) -> VolumeDriver:
        whole = build()
        options = {**whole.options, "dirs_path": "/nowhere/at/all"}
        return DirsVolumes("kit", options, whole.root)

    @pytest.fixture
    def full_pool(
        self, driver: VolumeDriver, pool: Path
    ) -> Callable[[], AbstractContextManager[None]]:
        @contextlib.contextmanager
        def full() -> Iterator[None]:
            filler = pool / f"filler-{uuid.uuid4()}"
            filler.touch()
            free = driver.capacity().free
            if os.path.ismount(pool):
                with filler.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, free)
            else:
                os.truncate(filler, free)
            yield
            filler.unlink()

        return full

    @pytest.fixture
    def foreign_state(self, pool: Path) -> Callable[[], object]:
        theirs = pool / "volume-of-another-owner"
        theirs.write_bytes(b"somebody's" * 1000)
        return lambda: (theirs.stat(follow_symlinks=False)[:7], theirs.read_bytes())

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        """Killed before the file was renamed; its bytes are not zeros."""
        assert isinstance(driver, DirsVolumes)
        path = Path(driver.options["dirs_path"]) / f"{volume.name}.new"
        path.write_bytes(b"half" * 10000)
