# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""rootwrap.d lets the LVM driver do its work, and nobody anything else.

The rules are asked as the root helper asks them, with oslo.rootwrap's matcher.
"""

from __future__ import annotations

import inspect
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from drivers.errors import HelperRefused
from drivers.helper.commands import Commands
from drivers.lvm.commands import Lvm

FILTERS = Path(__file__).parents[2] / "rootwrap.d"
PROGRAMS = (
    "vgs lvs lvcreate lvremove lvrename lvextend lvchange blkdiscard sync sh"
    " privsep-helper lvreduce dd lvm"
)
UUID = "11111111-2222-4333-8444-555555555555"
NAME = f"volume-{UUID}"
J = "--reportformat json --units b --nosuffix"
REPORT = '{"report": [{"vg": [{"vg_size": "8", "vg_free": "4"}], "lv": [], "seg": []}]}'

# How the drivers call each method of Lvm; a new method needs a line here.
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("group", ()),
    ("pool", ("lunshare-pool",)),
    ("volumes", ()),
    ("parts", (NAME,)),
    ("segments", (f"{NAME}.tail",)),
    ("create_thick", (f"{NAME}.new", 8 << 20)),
    ("create_thick", (f"{NAME}.tail", 8 << 20)),
    ("create_thin", (NAME, (8 << 20) + 1, "lunshare-pool")),
    ("remove", (NAME,)),
    ("remove", (f"{NAME}.new",)),
    ("remove", (f"{NAME}.tail",)),
    ("rename", (f"{NAME}.new", NAME)),
    ("extend", (NAME, 8 << 20)),
    ("extend", (NAME, 8 << 20, "/dev/mapper/mpath-a_1:0-24")),
    ("activate", (NAME,)),
    ("activate_all", ()),
    ("wipe", (f"{NAME}.new", 8 << 20)),
    ("wipe", (f"{NAME}.tail", 8 << 20)),
]

QUESTIONS = ("lvs", "vgs")
NO_ARCHIVE = "backup/archive=0"

REFUSED = [
    f"lvremove --config backup/archive=1 --yes lunshare/{NAME}",
    f"lvremove --config backup/archive=0,global/etc=1 --yes lunshare/{NAME}",
    f"lvremove --config {NO_ARCHIVE} --config {NO_ARCHIVE} --yes lunshare/{NAME}",
    f"lvs --config {NO_ARCHIVE} {J} -o lv_name lunshare",
    "sh -c id",
    "privsep-helper --privsep_context os_brick.privileged.default",
    "lvm lvs",
    # volumes that are not ours
    "lvremove --yes lunshare/root",
    "lvremove --yes lunshare",
    "lvremove --yes lunshare/volume-of-somebody-else",
    f"lvremove --yes lunshare/{NAME}.old",
    f"lvremove --yes lunshare/x{NAME}",
    f"lvremove --yes lunshare/{NAME} lunshare/root",
    f"lvremove --yes --force lunshare/{NAME}",
    "lvcreate --yes -n root -L 8388608b lunshare",
    f"lvcreate --yes --thin --virtualsize 8b -n {NAME}.new lunshare/pool",
    "lvextend -L 8388608b lunshare/root",
    f"lvextend -L +8388608b lunshare/{NAME}",
    f"lvextend -L 8g lunshare/{NAME}",
    f"lvreduce -L 8388608b lunshare/{NAME}",
    f"lvrename lunshare root {NAME}",
    f"lvrename lunshare {NAME}.new root",
    f"lvrename lunshare {NAME} {NAME}.new",
    "lvchange -ay -K lunshare/root",
    f"lvchange -an lunshare/{NAME}",
    "lvchange -ay -K --select lv_name=~. lunshare",
    "lvchange -ay -K --select vg_free>0 lunshare",
    # devices that are not ours
    "blkdiscard --zeroout /dev/sda",
    "blkdiscard --zeroout /dev/lunshare/root",
    f"blkdiscard --zeroout /dev/../dev/lunshare/{NAME}",
    f"blkdiscard --zeroout /dev/../{NAME}",
    f"blkdiscard --zeroout /etc/{NAME}",
    f"blkdiscard --zeroout /dev/shm/{NAME}",
    f"sync /dev/mqueue/{NAME}",
    f"blkdiscard /dev/lunshare/{NAME}.new",
    f"sync /dev/../{NAME}",
    "sync",
    f"dd if=/dev/zero of=/dev/lunshare/{NAME}",
    # options where a name belongs
    f"vgs {J} -o vg_size,vg_free --config",
    f"vgs {J} -o vg_size,vg_free -a",
    f"vgs {J} -o vg_size,vg_free lunshare --config x",
    "vgs --config global/x=1 -o vg_size lunshare",
    f"lvs {J} -o lv_name --select lv_name=~. lunshare",
    f"lvcreate --yes -n {NAME} -L 8b --config",
    f"lvextend -L 8388608b lunshare/{NAME} --config",
    # more than the pattern, after it
    f"lvremove --yes 'lunshare/{NAME}\n'",
    f"lvremove --yes 'lunshare/{NAME}\nlunshare/root'",
    f"/tmp/lvremove --yes lunshare/{NAME}",
]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """The filters over programs that exist but are never run."""
    for program in PROGRAMS.split():
        (tmp_path / program).touch(0o755)
    # The helper refuses rules that others may write, as a checkout may be.
    rules = tmp_path / "rootwrap.d"
    rules.mkdir(0o755)
    for source in FILTERS.iterdir():
        shutil.copyfile(source, rules / source.name)
        rules.joinpath(source.name).chmod(0o644)
    return Commands(str(rules), [str(tmp_path)])


class Asking:
    """A door to root that asks the filters instead of running anything."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.allowed: list[list[str]] = []

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.allowed.append(self._commands.command(argv))
        return REPORT

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        raise HelperRefused(verb, "LVM needs no typed verb")


@pytest.mark.parametrize(("method", "arguments"), CALLS)
def test_what_the_driver_runs_is_allowed(commands, method, arguments):
    root = Asking(commands)
    getattr(Lvm(root, "lun-share.1", 60), method)(*arguments)
    assert root.allowed


def test_every_command_of_the_driver_is_tried():
    methods = {
        name
        for name, _ in inspect.getmembers(Lvm, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods - {"path"} == {method for method, _ in CALLS}


def test_a_size_that_is_no_multiple_of_a_sector_is_rounded_up(commands):
    root = Asking(commands)
    Lvm(root, "lunshare", 60).create_thick(f"{NAME}.new", 8193)
    assert "8704b" in root.allowed[0]


@pytest.mark.parametrize("line", REFUSED)
def test_everything_else_is_refused(commands, line):
    with pytest.raises(HelperRefused):
        commands.command(_with_no_archive(line))


def test_what_is_refused_is_near_to_what_is_allowed(commands):
    assert commands.command(_with_no_archive(f"lvremove --yes lunshare/{NAME}"))


def _with_no_archive(line: str) -> list[str]:
    """The words; commands that change a group begin as the drivers' do."""
    words = shlex.split(line)
    program = Path(words[0]).name
    if program.startswith(("lv", "vg")) and program not in (*QUESTIONS, "lvm"):
        words[1:1] = [] if words[1] == "--config" else ["--config", NO_ARCHIVE]
    return words
