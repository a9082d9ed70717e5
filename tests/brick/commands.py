# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What cinder's commands of brick-cinderclient-ext do, for docs/clients.md.

tests/brick/test_local_attach.py finds it with a kernel; docs/clients.md is compared by
``make clients``, which has none.
"""

from __future__ import annotations

from collections.abc import Mapping

#: With 3.43 it uses the volume's actions, from 3.44 on attachments.
MICROVERSIONS = ("3.43", "3.71")
#: os-brick takes locks between processes, and neither it nor cinder says where.
ENVIRON = {"OSLO_LOCK_PATH": "/run/lock"}
#: The end of every command that prints a table: cinderclient 9 has no such function.
NO_TABLE = "module 'cinderclient.utils' has no attribute 'print_dict'"
WORKS = "works"
WORKS_SILENTLY = "works, then fails to print the result"

COMMANDS: Mapping[str, str] = {
    "get-all-volume-paths": WORKS,
    "get-connector": WORKS_SILENTLY,
    "get-volume-paths": WORKS,
    "local-attach": WORKS_SILENTLY,
    "local-detach": WORKS,
}
