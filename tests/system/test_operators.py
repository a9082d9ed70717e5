# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of an operator, on the installed node."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import block
from tests.system.kernel import Live
from tests.system.units import run
from tests.system.volumes import BorrowVolume, MakeHost

pytestmark = pytest.mark.system

BIN = Path(sys.executable).parent
COPIES = Path("/var/lib/lunshare-backup")


def run_command(*words: str) -> tuple[int, str]:
    """A command's exit code and output."""
    program, *rest = words
    done = subprocess.run(
        [BIN / program, *rest], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def shows_its_removal(volume: str) -> bool:
    """Remove an export and show its hosts; False if a reconcile was between them.

    The node has one each minute, which exports it again.
    """
    code, text = run_command("lunshare-helper", "exports", "--remove", volume, "--yes")
    assert (code, text.startswith("removed: ")) == (0, True)
    gone = Live(volume).gone
    code, text = run_command("lunshare", "hosts", volume)
    if code == 0 or not gone:
        return False
    assert code == 5
    assert "the database says ro, the target allows nothing" in text
    return True


def test_hosts_and_exports_show_the_kernels_state_and_are_removed(
    api: Api, borrow: BorrowVolume, host: MakeHost
) -> None:
    volume, writer, reader = borrow(), host("writer"), host("reader")
    rows = {
        h.name: api.attach(volume, h, m) for h, m in ((writer, "rw"), (reader, "ro"))
    }
    session = writer.login(rows[writer.name]["connection_info"])
    session.write(0, block("operators"))
    code, text = run_command("lunshare", "hosts", volume, "--json")
    lines = {line["host"]: line for line in json.loads(text)}
    assert code == 0, text
    seen = (
        "initiator",
        "mode",
        "status",
        "sessions",
        "addresses",
        "allowed",
        "problem",
    )
    assert [lines[writer.name][key] for key in seen] == [
        *(writer.initiator, "rw", "attaching", 1, ["127.0.0.1"], "rw", None)
    ]
    assert [lines[reader.name][key] for key in seen] == [
        *(reader.initiator, "ro", "attaching", 0, [], "ro", None)
    ]

    code, text = run_command("lunshare-helper", "exports")
    assert code == 0
    assert f"volume {volume}: 2 hosts, 1 logged in" in text
    code, text = run_command("lunshare-helper", "exports", "--remove", volume)
    assert text.endswith("nothing is removed without --yes\n")
    session.write(0, block("still there"))
    until(lambda: shows_its_removal(volume))
    for row in rows.values():
        assert api.detach(row["id"])[0] == 200
    code, text = run_command("lunshare-helper", "exports", "--remove", volume, "--yes")
    assert (code, text.count("\n")) == (1, 1)


def test_backup_unit_writes_a_checked_copy_owned_by_the_user() -> None:
    run("systemctl", "start", "lunshare-backup.service")
    copy = max(COPIES.iterdir())
    assert copy.owner() == "lunshare"
    assert copy.stat().st_mode & 0o777 == 0o600
    opened = sqlite3.connect(copy)
    (tables,) = opened.execute("SELECT count(*) FROM volumes").fetchone()
    opened.close()
    assert tables >= 0
    copy.unlink()
