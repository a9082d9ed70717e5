# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The filters of rootwrap.d over programs that exist but are never run."""

from __future__ import annotations

import shutil
from pathlib import Path

from lunshare.helper.commands import Commands
from lunshare.helper.served import Served

FILTERS = Path(__file__).parents[2] / "rootwrap.d"
PROGRAMS = (
    "vgs lvs lvcreate lvremove lvrename lvextend lvchange blkdiscard sync sh"
    " dmsetup privsep-helper lvreduce lvconvert vgchange dd lvm mkdir mount"
    " umount nsenter"
)


def load(directory: Path, served: Served) -> Commands:
    """Return the commands that are allowed; ``directory`` is created for programs."""
    directory.mkdir(parents=True)
    for program in PROGRAMS.split():
        (directory / program).touch(0o755)
    # The helper refuses rules that others may write, as a checkout may be.
    rules = directory / "rootwrap.d"
    rules.mkdir(0o755)
    for source in FILTERS.iterdir():
        shutil.copyfile(source, rules / source.name)
        rules.joinpath(source.name).chmod(0o644)
    return Commands(str(rules), [str(directory)], served)
