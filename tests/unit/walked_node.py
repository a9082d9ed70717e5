# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A node with the drivers of LVM and LIO and the real helper, for the walks.

The kernel's and LVM's own parts are stand-ins: directories in place of configfs
(configfs_tree), scripts in place of LVM's commands, and three reads of devices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lunshare.drivers import devices
from lunshare.drivers.lvm import claim, lvm_driver
from lunshare.drivers.values import GIB
from lunshare.helper.lvm import pool_status
from lunshare.helper.served import Served
from tests.stands.node import Node
from tests.unit import lvm_answers
from tests.unit.configfs_tree import Tree
from tests.unit.helper_thread import HelperThread, filters_of, write_filters
from tests.unit.lvm_answers import GROUP, THIN_POOL, VG, rows

PREFIX = "iqn.2026-11.io.lunshare:"
_POOL_STATUS = lvm_answers.pool_status(5, 5)
_PROGRAMS = ("lvchange", "lvcreate", "lvs", "vgs")
# A later value of an option replaces an earlier one.
_SECTION = f"""
volume_driver = lvm
target_driver = lio
volume_group = {GROUP}
lvm_pool = pool

[helper]
socket = """


@contextmanager
def walked_node(path: Path) -> Iterator[Node]:
    """Start a node that works on nothing of this machine."""
    programs = path / "bin"
    programs.mkdir()
    filters = write_filters(path, filters_of(*_PROGRAMS))
    for name, text in _answers().items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        Tree(path / "configfs", patch).create_attributes(GROUP)
        patch.setattr(devices, "block_size", lambda path: GIB)
        modules = vars(lvm_driver).values()
        reading = next(m for m in modules if hasattr(m, "thin_pool_of"))
        patch.setattr(reading, "thin_pool_of", lambda path, group: "pool")
        patch.setattr(
            pool_status,
            "_status",
            lambda name, kind, _: "0 -" if kind == "thin" else _POOL_STATUS,
        )
        helper = HelperThread(
            path / "helper.sock",
            filters,
            {os.getuid()},
            Served(PREFIX, groups=(GROUP,)),
            (str(programs),),
        )
        try:
            node = _node(path)
            yield node.start()
            node.close()
        finally:
            helper.end()


def _node(path: Path) -> Node:
    section = f"{_SECTION}{path / 'helper.sock'}"
    return Node(path, backends="walks", section=section)


def _answers() -> dict[str, str]:
    group = VG % (50, claim.node_tag())
    return {
        "lvchange": "exit 0",
        "lvcreate": "exit 0",
        "vgs": f"/bin/cat <<'END'\n{group}\nEND",
        "lvs": (
            f"case \"$*\" in *segtype*) /bin/cat <<'END'\n{THIN_POOL}\nEND\n;;\n"
            f"*) echo '{rows()}';; esac"
        ),
    }
