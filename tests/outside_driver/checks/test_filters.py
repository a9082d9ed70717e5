# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The filters allow the commands of this driver, and nothing similar."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dirs_fixtures import POOL_PATH, filters_for
from lunshare.drivers.errors import HelperRefused
from lunshare.helper.commands import Commands

VOLUME = f"{POOL_PATH}/volume-11111111-2222-4333-8444-555555555555"

REFUSED = [
    f"install -o 0 -m 4755 /dev/null {VOLUME}.new",
    f"install -o 0 -m 0600 /etc/shadow {VOLUME}.new",
    f"install -o 0 -m 0600 /dev/null {VOLUME}",
    "fallocate -l 4096 /etc/passwd",
    f"fallocate -p -l 4096 {VOLUME}",
    f"fallocate -l 4096 {POOL_PATH}/volume-of-another-owner",
    f"fallocate -l 4096 {POOL_PATH}/../{VOLUME.rpartition('/')[2]}",
    f"mv -T {VOLUME} {VOLUME}.new",
    f"mv -T /etc/shadow {VOLUME}",
    f"mv {VOLUME}.new {VOLUME}",
    f"rm -f {VOLUME} {POOL_PATH}/volume-of-another-owner",
    f"rm -rf {POOL_PATH}",
    "sync",
    f"sync {POOL_PATH}/volume-of-another-owner",
    f"sync -f {VOLUME}",
    f"rm -f {VOLUME}",
]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    filters = filters_for(POOL_PATH, tmp_path / "rootwrap.d")
    return Commands(filters, ["/usr/sbin", "/usr/bin"])


@pytest.mark.parametrize("line", REFUSED)
def test_similar_commands_are_refused(commands: Commands, line: str) -> None:
    with pytest.raises(HelperRefused):
        commands.command(shlex.split(line))


def test_the_directory_is_the_default_of_the_option(commands: Commands) -> None:
    line = f"rm -f {VOLUME}.new {VOLUME}"
    assert commands.command(shlex.split(line))[1:] == shlex.split(line)[1:]
