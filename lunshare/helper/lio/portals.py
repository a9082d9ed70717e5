# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses and ports the kernel's iSCSI target serves, whoever made them."""

from __future__ import annotations

import os

from lunshare.drivers.values import Portal
from lunshare.helper.lio.configfs import ISCSI, names


def is_portal(portal: Portal) -> bool:
    """Whether any target of this node has this portal. Reads until the first."""
    return any(
        os.path.isdir(f"{ISCSI}/{target}/{group}/np/{portal}")
        for target in names(ISCSI)
        for group in names(f"{ISCSI}/{target}")
    )
