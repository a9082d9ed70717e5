# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Install and build what a run needs, once, while this machine's network is there."""

from __future__ import annotations

from tests.fleet_nodes import glance
from tests.lab import host
from tests.lab.main import build_quick
from tests.stands import cinder_programs, keystone
from tests.tempest import pins, tempest_run

if __name__ == "__main__":
    cinder_programs.python()
    glance.venv()
    keystone.prepared(pins.venv())
    tempest_run.listed(pins.venv())
    host.need_programs()
    build_quick()
