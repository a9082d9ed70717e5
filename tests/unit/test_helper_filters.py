# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""rootwrap.d as the helper reads it: what a taken-over daemon could not run.

That every command of the LVM driver is allowed is shown beside that driver.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drivers.errors import HelperRefused
from drivers.helper.commands import Commands

SOURCE = Path(__file__).parents[2] / "rootwrap.d"
ID = "0a1b2c3d-0000-4000-8000-000000000001"
OURS = f"volume-{ID}"
JSON = ["--reportformat", "json", "--units", "b", "--nosuffix", "-o"]
PROGRAMS = "vgs lvs lvcreate lvremove lvrename lvextend lvchange blkdiscard sync sh dd"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """With programs that exist, so that only the filters can refuse."""
    directory = tmp_path_factory.mktemp("bin")
    for name in PROGRAMS.split():
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    rules = tmp_path_factory.mktemp("rootwrap") / "rootwrap.d"
    shutil.copytree(SOURCE, rules)
    for path in (rules, *rules.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return Commands(str(rules), [str(directory)])


@pytest.mark.parametrize(
    "argv",
    [
        ["vgs", *JSON, "vg_size,vg_free", "vg"],
        ["lvs", *JSON, "lv_name,lv_size", "vg"],
        ["lvs", *JSON, "lv_name", "vg/pool"],
        ["lvcreate", "--yes", "-n", OURS + ".new", "-L", "1024b", "vg"],
        ["lvremove", "--yes", f"vg/{OURS}"],
        ["lvrename", "vg", OURS + ".new", OURS],
        ["lvextend", "-L", "1024b", f"vg/{OURS}", "/dev/sda1:0-24"],
        ["blkdiscard", "--zeroout", f"/dev/vg/{OURS}.new"],
    ],
)
def test_commands_on_our_volumes_are_allowed(
    commands: Commands, argv: list[str]
) -> None:
    assert commands.command(argv)[1:] == argv[1:]


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "id"],
        ["dd", "if=/dev/zero", "of=/dev/sda"],
        ["lvremove", "--yes", "vg/root"],
        ["lvremove", "--yes", "vg"],
        ["lvremove", "--yes", "--force", f"vg/{OURS}"],
        ["lvremove", "--yes", f"vg/{OURS}", "vg/root"],
        ["lvremove", "--yes", f"vg/{OURS}.other"],
        ["lvremove", "--yes", f"vg/{OURS}\n"],
        ["lvremove", "--yes", f"../vg/{OURS}"],
        ["lvremove", "--config", "global/abort=1", f"vg/{OURS}"],
        ["lvrename", "vg", "root", OURS],
        ["lvrename", "vg", OURS + ".new", "root"],
        ["lvrename", "vg", OURS, OURS + ".new"],
        ["lvcreate", "--yes", "-n", "root", "-L", "1024b", "vg"],
        ["lvcreate", "--yes", "-n", OURS, "-L", "100%FREE", "vg"],
        ["lvcreate", "--yes", "-n", OURS, "-L", "1024b", "--config"],
        ["lvextend", "-L", "1024b", "vg/root"],
        ["lvextend", "-L", "1024b", f"vg/{OURS}", "--config=x"],
        ["lvchange", "-an", f"vg/{OURS}"],
        ["lvchange", "-ay", "-K", "vg/root"],
        ["vgs", *JSON, "vg_size", "--config=x"],
        ["lvs", *JSON, "lv_name", "--help"],
        ["blkdiscard", "--zeroout", "/dev/sda"],
        ["blkdiscard", "--zeroout", f"/dev/../{OURS}"],
        ["blkdiscard", "--zeroout", f"/dev/vg/x/../{OURS}"],
        ["blkdiscard", "--zeroout", "/dev/vg/root"],
        ["sync", "/etc/shadow"],
    ],
)
def test_anything_else_is_refused(commands: Commands, argv: list[str]) -> None:
    with pytest.raises(HelperRefused):
        commands.command(argv)


def test_the_rules_end_with_their_file(commands: Commands) -> None:
    lines = (SOURCE / "lvm.filters").read_text().splitlines()
    assert len(commands) == sum(": RegExpFilter," in line for line in lines)
