# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Saved reservations of a host that lost its LUN, on a disk that is nearly full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lunshare.helper.lio import reservations
from lunshare.helper.lio.target_tree import Target

ID = "6b1f5a52-31c2-4f0e-9f39-5a5c0b8b3c11"
PREFIX = "iqn.2026-11.io.test:"
ONE, TWO = (f"iqn.1994-05.com.example:{name}" for name in ("one", "two"))
ENTRY = """PR_REG_START: {number}
initiator_fabric=iSCSI
initiator_node={host}
sa_res_key=123
mapped_lun=0
target_fabric=iSCSI
target_node={iqn}
tpgt=1
target_lun=0
PR_REG_END: {number}
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Both hosts have a key in the kernel's file."""
    monkeypatch.setattr(reservations, "ROOT", str(tmp_path))
    made = Target(PREFIX, ID)
    (tmp_path / "dbroot").write_text(str(tmp_path))
    (tmp_path / "pr").mkdir()
    hosts = enumerate((ONE, TWO))
    text = "".join(ENTRY.format(number=n, host=h, iqn=made.iqn) for n, h in hosts)
    (tmp_path / "pr" / f"aptpl_{ID}").write_text(text)
    return made


def restored(target: Target, tmp_path: Path) -> set[str]:
    """The hosts whose keys a new backstore gets."""
    store = tmp_path / "store/pr"
    store.mkdir(parents=True, exist_ok=True)
    (store / "res_aptpl_metadata").touch()
    kept = reservations.entries_of(target)
    changes = reservations.restore(target, str(store.parent), kept, None)
    return {host for host in (ONE, TWO) if any(host in each for each in changes)}


def test_record_that_is_written_in_part_is_an_error_and_spoils_no_other(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next record was added to the half of it: neither host's key was void."""
    write = os.write

    def half(file: int, data: Any) -> int:
        return write(file, data[: len(data) // 2])

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            reservations.void_saved(target, ONE)
    reservations.void_saved(target, TWO)
    assert restored(target, tmp_path) == {ONE}
    reservations.void_saved(target, ONE)
    assert restored(target, tmp_path) == set()
