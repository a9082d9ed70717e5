# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which messages of LVM mean that there is no space (lvm2 2.03.16)."""

import pytest

from lunshare.drivers.errors import CommandFailed, NoSpace
from lunshare.helper.lvm.changes import failure

FULL = '  Volume group "lunshare" has insufficient free space (3 extents): 5.'
POOL = "  Free space in pool lunshare/pool is above threshold: reached threshold."
EXISTS = '  Logical Volume "v" already exists in volume group "lunshare"'


@pytest.mark.parametrize(
    "message", [FULL, POOL, "out of metadata space", "Out of Data space"]
)
@pytest.mark.parametrize("program", ["lvcreate", "lvextend"])
def test_command_without_space_is_no_space_on_its_group(program: str, message: str):
    error = failure((program, "-L", "8b", "lunshare/v"), 5, f"{message}\n")
    assert isinstance(error, NoSpace)
    assert (error.pool, error.why) == ("lunshare", message.strip())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("lvcreate", "lunshare"), EXISTS),
        (("lvcreate", "lunshare"), f"  WARNING: out of data space\n{EXISTS}"),
        (("lvextend", "lunshare/v"), f"{FULL}\n  matches existing size"),
        # Its caller has to know that a removal failed after its commit.
        (("lvremove", "lunshare/v"), "out of metadata space"),
        (("lvchange", "-ay", "lunshare/v"), "out of data space"),
        (("mount", "-t", "nfs", "nas:/a", "/b"), FULL),
    ],
)
def test_other_failures_keep_their_message(argv: tuple[str, ...], message: str):
    error = failure(argv, 5, message)
    assert isinstance(error, CommandFailed)
    assert (error.argv, error.exit_code, error.stderr) == (argv, 5, message)
