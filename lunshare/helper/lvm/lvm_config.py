# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The LVM settings that lunshare depends on, whatever the node's lvm.conf has.

``--config`` takes precedence over lvm.conf, lvmlocal.conf and every profile
(lvm.conf(5)). The helper adds it, so no client can change it. Settings that are not
named here stay as the node has them: its filters, its devices file, its locking.
"""

from __future__ import annotations

from collections.abc import Sequence

#: The drivers read reports and sentences in these forms. With
#: ``binary_values_as_numeric`` "open" is "1" and what is not open is "0";
#: ``compact_output`` leaves out a column that is empty in every row.
_REPORT = (
    "report/binary_values_as_numeric=0",
    "report/compact_output=0",
    'report/compact_output_cols=""',
    'report/list_item_separator=","',
    "report/buffered=1",
    "report/mark_hidden_devices=1",
    "log/report_command_log=0",
    "log/command_names=0",
    "log/silent=0",
    "log/verbose=0",
)

#: A command really makes its change, waits for locks, and ends when udev has created
#: the device nodes.
_WORK = (
    "global/test=0",
    "global/wait_for_locks=1",
    "activation/udev_sync=1",
    "activation/udev_rules=1",
    "activation/retry_deactivation=1",
)

#: A volume of the group is activated, and writable, whatever lists the node has. With
#: a ``volume_list`` without the group LVM creates a volume and no device; lunshare
#: would wait for that.
_LISTS = ('activation/volume_list=["{group}"]', "activation/read_only_volume_list=[]")

#: LVM never reads the content of a volume as its own: a volume group inside a volume
#: belongs to the host.
_DEVICES = ("devices/scan_lvs=0",)

#: A removed volume leaves no history entry with its name. Before a change LVM reads
#: every file in /etc/lvm/archive, for 30 days (lvm2 2.03.16): with 1,700 of them
#: lvremove took 1.1 s instead of 0.6 in the lab. /etc/lvm/backup, which LVM writes
#: after a change, is enough to restore a lost group.
_METADATA = ("metadata/record_lvs_history=0", "backup/archive=0", "backup/backup=1")

_ALWAYS = (*_REPORT, *_WORK, *_DEVICES, *_METADATA)

#: The extents of a wiped tail go to a volume next. After a discard the disk could
#: return any bytes for them.
_WIPED = ("devices/issue_discards=0",)

_TAIL = ".tail"


def pinned(command: Sequence[str]) -> list[str]:
    """Return the same LVM command, with these settings in place of its ``--config``."""
    program, *words = command
    if words[:1] == ["--config"]:
        words = words[2:]
    lists = (pin.format(group=_group(program, words)) for pin in _LISTS)
    pins = [*_ALWAYS, *lists, *(_WIPED if words[-1].endswith(_TAIL) else ())]
    return [program, "--config", " ".join(pins), *words]


def _group(program: str, words: Sequence[str]) -> str:
    """Return the volume group of a command: lvrename names it first."""
    if program.endswith("lvrename"):
        return words[0]
    named = [word for word in words if not word.startswith("/dev/")]
    return named[-1].partition("/")[0]
