# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every LVM command runs with the settings that the drivers depend on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lunshare.helper.commands import Commands
from lunshare.helper.lvm.lvm_config import pinned

NAME = "volume-11111111-2222-4333-8444-555555555555"
PINS = (
    "report/binary_values_as_numeric=0",
    "report/compact_output=0",
    "log/report_command_log=0",
    "global/test=0",
    "activation/udev_sync=1",
    "devices/scan_lvs=0",
    "metadata/record_lvs_history=0",
    "backup/archive=0",
    "backup/backup=1",
)


@pytest.mark.parametrize(
    "line",
    [
        "lvs -o lv_name lunshare",
        "vgs -o vg_size lunshare",
        f"lvremove --config backup/archive=1 --yes lunshare/{NAME}",
        f"lvcreate --config report/binary_values_as_numeric=1 -n {NAME} lunshare",
    ],
)
def test_lvm_command_gets_the_settings(tmp_path: Path, line: str) -> None:
    argv = shlex.split(line)
    program = tmp_path / "bin" / argv[0]
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    rules = tmp_path / "rootwrap.d"
    rules.mkdir(mode=0o755)
    filters = rules / "test.filters"
    filters.write_text(f"[Filters]\nx: CommandFilter, {argv[0]}, root\n")
    filters.chmod(0o644)
    said = Commands(str(rules), [str(program.parent)]).run(argv, 30).splitlines()
    assert said[0] == "--config"
    assert set(PINS) <= set(said[1].split())
    asked = argv[3:] if argv[1] == "--config" else argv[1:]
    assert said[2:] == asked


@pytest.mark.parametrize(
    ("name", "disabled"),
    [(f"{NAME}.tail", True), (NAME, False), (f"{NAME}.new", False)],
)
def test_wiped_extents_for_a_volume_are_not_discarded(name, disabled):
    config = pinned(["lvremove", "--yes", f"lunshare/{name}"])[2].split()
    assert ("devices/issue_discards=0" in config) is disabled


@pytest.mark.parametrize(
    "line",
    [
        f"lvcreate --yes -n {NAME} -L 2048b lunshare",
        f"lvcreate --yes --thin --virtualsize 2048b -n {NAME} lunshare/pool",
        f"lvextend -L 4096b lunshare/{NAME} /dev/sda:1-2",
        f"lvrename lunshare {NAME}.new {NAME}",
        "lvchange -ay --select x lunshare",
    ],
)
def test_volumes_are_active_and_writable_whatever_lists_the_node_has(line: str) -> None:
    config = pinned(shlex.split(line))[2].split()
    assert 'activation/volume_list=["lunshare"]' in config
    assert "activation/read_only_volume_list=[]" in config


def test_each_setting_is_named_once():
    config = pinned(["lvs", "lunshare"])[2].split()
    keys = [pin.partition("=")[0] for pin in config]
    assert len(keys) == len(set(keys))
    assert all(pin.count("=") == 1 and "/" in pin for pin in config)
