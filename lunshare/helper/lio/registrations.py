# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts have a key of a persistent reservation now, and who holds it. Reads only.

The kernel shows a page of registrations, some 30 (6.1). The texts are those of
target_core_configfs.c and core_scsi3_pr_dump_type (seen on 7.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.configfs import read_or_empty
from lunshare.helper.lio.target_tree import Target

#: From the kernel's name of a reservation to its number in SPC.
TYPES = {
    "Write Exclusive Access": 1,
    "Exclusive Access": 3,
    "Write Exclusive Access, Registrants Only": 5,
    "Exclusive Access, Registrants Only": 6,
    "Write Exclusive Access, All Registrants": 7,
    "Exclusive Access, All Registrants": 8,
}
_OF_ALL = (7, 8)  # each registrant holds it
_PORT = r"([^\s,]+)(?:,i,0x([0-9a-f]+))?"
_REGISTRATION = re.compile(rf"iSCSI Node: {_PORT} Key: (0x[0-9a-f]+)", re.IGNORECASE)
_HOLDER = re.compile(rf"Reservation: iSCSI Initiator: {_PORT}", re.IGNORECASE)
_TYPE = re.compile("Reservation Type: (.+)")


def shown(target: Target) -> list[dict[str, str]]:
    """Return the fields of each Registration (lunshare.drivers.values)."""
    return [
        {"initiator": host, "key": key, "holds": kind}
        for host, _, key, kind in _registrations(target)
    ]


def live(target: Target) -> list[dict[str, str]]:
    """Return each as the words that ``pr/res_aptpl_metadata`` takes."""
    return [
        {
            "initiator_fabric": "iSCSI",
            "initiator_node": host,
            **({"initiator_sid": isid} if isid else {}),
            "sa_res_key": key,
            **({"res_holder": "1", "res_type": f"{TYPES[kind]:02}"} if kind else {}),
            "target_fabric": "iSCSI",
            "target_node": target.iqn,
        }
        for host, isid, key, kind in _registrations(target)
    ]


def _registrations(target: Target) -> Iterator[tuple[str, str, str, str]]:
    """Yield initiator, ISID or "", key, and the type of what it holds or ""."""
    place = target.backstore_link(Role.WRITERS) + "/pr/"
    lines = _REGISTRATION.findall(read_or_empty(place + "res_pr_registered_i_pts"))
    if not lines:
        return
    holder = _HOLDER.search(read_or_empty(place + "res_holder"))
    named = _TYPE.search(read_or_empty(place + "res_pr_type"))
    kind = named[1] if named and named[1] in TYPES else ""
    for host, isid, key in lines:
        is_holder = holder and (host, isid) == (holder[1], holder[2] or "")
        holds = is_holder or TYPES.get(kind) in _OF_ALL
        yield host, isid, key, kind if holds else ""
