# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The driver for a stock Cinder: ``volume_driver = lunshare.cinder.LunshareDriver``.

==================  ============================================================
volume_driver       the class that cinder-volume loads
assembled           the parts of one backend, and what is done at a start
backend_section     its options in cinder.conf; the drivers that they choose
foreign_options     options of Cinder's drivers that mean nothing here
cinder_rows         what Cinder's database says of a volume's hosts
wanted_access       from those rows to the access that a target should have
unfinished          access whose rows Cinder writes only after the driver's answer
host_connections    attaches and detaches hosts; the lock of each volume
chap_secrets        a CHAP secret for each host, from one key for each volume
local_migration     a volume's bytes to another backend of the node
node_location       where a backend is, as others of its node know it
manageable_disks    foreign disks of the pool
scheduler_stats     what the scheduler gets
cinder_errors       errors of drivers as Cinder's
==================  ============================================================

Cinder's database is the truth. What this package keeps in memory can be lost at any
time, and a start builds every target from the rows again.
"""

from __future__ import annotations

from typing import Any

__all__ = ["LunshareDriver"]


def __getattr__(name: str) -> Any:
    """Import the driver when it is used: only that part needs Cinder."""
    if name != "LunshareDriver":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lunshare.cinder.volume_driver import LunshareDriver  # noqa: PLC0415

    return LunshareDriver
