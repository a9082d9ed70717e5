# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel's texts about reservations, and what a repaired target gets of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.helper.lio import registrations, reservations
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.target_tree import Target
from tests.unit.test_saved_reservations import ENTRY, ID, ONE, PREFIX, TWO

WERO = "Write Exclusive Access, Registrants Only"
SHOWN = f"""SPC-3 PR Registrations:
iSCSI Node: {ONE},i,0x00023d000001 Key: 0x00000000000000a1 PRgen: 0x00000001
iSCSI Node: {TWO} Key: 0x00000000000000b2 PRgen: 0x00000002
"""
NONE = "SPC-3 PR Registrations:\nNone\n"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target of which the kernel shows what a test writes with ``show``."""
    monkeypatch.setattr(reservations, "ROOT", str(tmp_path))
    (tmp_path / "dbroot").write_text(str(tmp_path))
    (tmp_path / "store/pr").mkdir(parents=True)
    monkeypatch.setattr(
        Target, "backstore_link", lambda _self, _role: str(tmp_path / "store")
    )
    return Target(PREFIX, ID)


def show(target: Target, shown: str, holder: str = "", kind: str = "") -> None:
    place = Path(target.backstore_link(Role.WRITERS), "pr")
    (place / "res_pr_registered_i_pts").write_text(shown)
    (place / "res_holder").write_text(holder or "No SPC-3 Reservation holder\n")
    (place / "res_pr_type").write_text(
        f"SPC-3 Reservation Type: {kind}\n" if kind else "No SPC-3 Reservation holder\n"
    )


def of(target: Target) -> dict[str, tuple[str, str]]:
    found = registrations.shown(target)
    return {each["initiator"]: (each["key"], each["holds"]) for each in found}


A1, B2 = "0x00000000000000a1", "0x00000000000000b2"


def test_keys_are_those_of_the_hosts_that_the_kernel_names(target: Target) -> None:
    show(target, SHOWN)
    assert of(target) == {ONE: (A1, ""), TWO: (B2, "")}
    show(target, NONE)
    assert of(target) == {}


@pytest.mark.parametrize(
    ("kind", "holds"), [(WERO, ""), ("Exclusive Access, All Registrants", "all")]
)
def test_the_holder_is_one_port_or_every_registrant(
    target: Target, kind: str, holds: str
) -> None:
    holder = f"SPC-3 Reservation: iSCSI Initiator: {ONE},i,0x00023d000001\n"
    show(target, SHOWN, holder, kind)
    assert of(target) == {ONE: (A1, kind), TWO: (B2, kind if holds else "")}


def test_another_port_of_the_holder_holds_nothing(target: Target) -> None:
    holder = f"SPC-3 Reservation: iSCSI Initiator: {ONE},i,0x00023d000002\n"
    show(target, SHOWN, holder, WERO)
    assert of(target)[ONE] == (A1, "")


def test_reserve_6_is_no_key(target: Target) -> None:
    """It ends with the session."""
    show(target, NONE, f"SPC-2 Reservation: iSCSI Initiator: {ONE}\n")
    assert of(target) == {}


def test_a_repaired_target_gets_the_live_keys_and_saved_ones_of_other_hosts(
    target: Target, tmp_path: Path
) -> None:
    """Only saved ones were restored: a repair dropped the others."""
    holder = f"SPC-3 Reservation: iSCSI Initiator: {ONE},i,0x00023d000001\n"
    show(target, SHOWN.splitlines()[1] + "\n", holder, WERO)
    saved = (ENTRY.format(number=0, host=TWO, iqn=target.iqn),)
    (tmp_path / "pr").mkdir()
    (tmp_path / f"pr/aptpl_{ID}").write_text("".join(saved))
    live, other = reservations.entries_of(target)
    assert live == {
        "initiator_fabric": "iSCSI",
        "initiator_node": ONE,
        "initiator_sid": "00023d000001",
        "sa_res_key": A1,
        "res_holder": "1",
        "res_type": "05",
        "target_fabric": "iSCSI",
        "target_node": target.iqn,
        "tpgt": "1",
        "mapped_lun": "0",
        "target_lun": "0",
    }
    assert other["initiator_node"] == TWO
