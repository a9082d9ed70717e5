# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The drivers' commands, changed at random: what may run then is harmless too."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import strategies as st

from lunshare.drivers.errors import DriverError
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.nfs.mount_commands import MountCommands
from lunshare.drivers.share_options import FLAGS, VALUED
from lunshare.helper.commands import Commands
from tests.unit.fuzzing import fuzz
from tests.unit.test_filters import (
    CALLS,
    MOUNTING,
    SERVED,
    SHARES,
    Asking,
    commands,
    served,
)

__all__ = ["commands", "fuzz", "served"]
NAME = "volume-00000000-0000-4000-8000-000000000000"

GROUP, BASE = "lun-share.1", "/run/lunshare/mnt"
ADDED = st.sampled_from(
    [
        *(
            "rootvg",
            "root",
            "/etc",
            "..",
            "/",
            "/dev/sda",
            "exec",
            "suid",
            "",
            "x",
            "a",
        ),
        *(
            "--config",
            "-a",
            "--force",
            "-o",
            "lunshare2",
            "\n",
            "\0",
            ";",
            "`",
            " ",
            ",",
        ),
        *(NAME, f"{NAME}.new", f"lunshare/{NAME}", "lunshare/root", "lunshare"),
    ]
)
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
OURS = re.compile(rf"(volume|_snapshot|deleted|unmanaged)-{UUID}(\.[a-z0-9]+)?")


@pytest.fixture
def allowed(commands: Commands) -> list[list[str]]:
    """Every command of the drivers."""
    root = Asking(commands)
    for method, given_ in CALLS:
        getattr(Lvm(root, GROUP, 60), method)(*given_)
    for method, share in product(MOUNTING, SHARES):
        getattr(MountCommands(root, BASE, 60), method)(share)
    return [[Path(words[0]).name, *words[1:]] for words in root.allowed]


def test_random_commands(fuzz, commands: Commands, allowed: list[list[str]]) -> None:
    """What the filters let through, a second reading of it finds harmless too."""
    options = {word for words in allowed for word in words if word.startswith("-")}
    for words in allowed:
        assert_harmless(words, options)

    def check(number: int, at: int, place: int, word: str, how: str) -> None:
        argv = list(allowed[number % len(allowed)])
        at %= len(argv)
        if how == "insert":
            argv.insert(at, word)
        elif how == "replace":
            argv[at] = word
        elif how == "splice":
            place %= len(argv[at]) + 1
            argv[at] = argv[at][:place] + word + argv[at][place:]
        else:
            argv[at] = allowed[place % len(allowed)][-1]
        try:
            commands.command(argv)
        except DriverError:
            return
        assert_harmless(argv, options)

    fuzz(
        check,
        st.integers(0, 10**6),
        st.integers(0, 100),
        st.integers(0, 10**6),
        ADDED,
        st.sampled_from(["insert", "replace", "splice", "swap"]),
    )


def after(words: list[str], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words else None


def assert_harmless(argv: list[str], options: set[str]) -> None:
    """No option but the drivers', nothing outside the served groups and shares."""
    program, words = argv[0], argv[1:]
    assert all(word.isprintable() for word in words), argv
    assert {word for word in words if word.startswith("-")} <= options, argv
    if program in ("mkdir", "mount", "umount"):
        assert re.fullmatch(f"{BASE}/[0-9a-f]{{32}}", words[-1]), argv
    if program == "mount":
        source, chosen = words[-2], (after(words, "-o") or "").split(",")
        assert any(source.startswith(each) for each in SERVED.shares), argv
        assert ".." not in source.split("/"), argv
        assert chosen[-4:] == ["nosuid", "nodev", "noexec", "nosymfollow"], argv
        assert all(o.split("=")[0] in NFS_OPTIONS for o in chosen[:-4]), argv
    if program in (
        "lvrename",
        "lvremove",
        "lvcreate",
        "lvchange",
        "lvextend",
        "lvreduce",
    ):
        changed = [word for word in words if not word.startswith("/dev/")]
        group, _, name = (
            changed[-1] if program != "lvrename" else words[-3]
        ).partition("/")
        assert SERVED.serves_group(group), argv
        assert program == "lvcreate" or not name or OURS.fullmatch(name), argv
        if program == "lvrename":
            assert OURS.fullmatch(words[-1]), argv
        if program == "lvcreate":
            assert OURS.fullmatch(str(after(words, "-n"))), argv
    for word in words:
        path = word.partition("=")[2] if program == "dd" else word
        if program in ("dd", "blkdiscard", "sync") and path.startswith("/"):
            group, name = path.removeprefix("/dev/").split("/")
            assert SERVED.serves_group(group), argv
            assert OURS.fullmatch(name), argv


NFS_OPTIONS = {*FLAGS.split("|"), *VALUED.split("|")}
