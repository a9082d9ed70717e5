# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The units of rtslib, which restore saved targets at a boot, and clear all of them.

What they restore may have hosts that were detached since, and writers that are
read-only now; and they start before cinder-volume does. lunshared.service conflicts
with them, cinder-volume's unit is not ours.
"""

from __future__ import annotations

from pathlib import Path

from lunshare.drivers.errors import Misconfigured

#: Upstream's name, and Debian's.
UNITS = ("target.service", "rtslib-fb-targetctl.service")


def require_masked(directory: Path = Path("/etc/systemd/system")) -> None:
    """Check the links of systemd.unit(5) in ``directory``. No process is started.

    :raises Misconfigured: such a unit is enabled, and not masked.
    """
    for unit in UNITS:
        enabled = [*directory.glob(f"*.wants/{unit}")]
        masked = (directory / unit).resolve() == Path("/dev/null")
        if enabled and not masked:
            raise Misconfigured(
                f"{unit} is enabled: at a boot it removes every target and restores"
                " saved ones, with hosts that may have no attachment now",
                f"run: systemctl mask {' '.join(UNITS)} (without --now, which removes"
                " every target)",
            )
