# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A power cut in the middle of a handover: before it, and after it.

``python -m tests.system.cut_handover begin STEP`` stops the node's daemon at a step of
a handover while its writer writes, and returns: the machine is to lose its power now.
``check`` looks at what the next boot has made of it. ``make handover-cuts`` runs both.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.stands.waiting import until
from tests.system import handed_volume, killable_node
from tests.system.after_outage import boot, write_durably
from tests.system.api import Api
from tests.system.handed_volume import HOSTS, READER, WRITER
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live
from tests.system.kill_at_steps import rows_of
from tests.system.prepare_outage import in_background
from tests.system.test_handover import Writes

_NOTE = Path("/var/lib/lunshare-cut.json")
_DATABASE = Path("/var/lib/lunshare/lunshare.sqlite")
_CONFIGURATION = ["--config-file", "/etc/lunshare/lunshare.conf"]
_USER = "lunshare"
_AT = 8
_SYNCHRONIZE_CACHE = bytes([0x35, *bytes(9)])


class StoppedNode:
    """The daemon's process, on the database of the installed one."""

    def __init__(self) -> None:
        self._end, its = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            self._be(its)
        its.close()
        assert killable_node.receive(self._end) == [], "its reconcile"

    def _be(self, end: socket.socket) -> None:
        """It stops where it would be killed: the helper has its request, and works."""
        try:
            killable_node.KillableHelper.ends_with = signal.SIGSTOP
            user = pwd.getpwnam(_USER)
            os.initgroups(_USER, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            handed_volume.live(_CONFIGURATION, end)
        finally:
            os._exit(1)

    def prepare(self, step: int) -> None:
        """Let the hosts have what they have before the handover."""
        order = {"operation": "handover", "step": step}
        killable_node.send(self._end, order)
        assert killable_node.receive(self._end) == []

    def stop_in_handover(self) -> None:
        """Return when it has stopped at the step."""
        killable_node.send(self._end, "begin")
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it has no such step"


def begin(step: int) -> None:
    """Note what is known when the node has stopped; the writer goes on."""
    subprocess.run(["systemctl", "stop", "lunshared.service"], check=True)
    node = StoppedNode()
    node.prepare(step)
    rows = {r["attached_host"]: r for r in rows_of(_DATABASE, "volume_attachment")}
    infos = {name: _info(rows[name]) for name in HOSTS}
    flusher = Host(READER).login(infos[READER])
    writes = Writes(Host(WRITER).login(infos[WRITER]), _AT)
    writes.wait_for_progress()
    node.stop_in_handover()
    acknowledged = writes.acknowledged
    flusher.command(_SYNCHRONIZE_CACHE)
    volume = rows[WRITER]["volume_id"]
    note = {
        "step": step,
        "boot": boot(),
        "volume": volume,
        "infos": infos,
        "acknowledged": acknowledged,
        "modes": _by_host(Live(volume)),
    }
    write_durably(_NOTE, json.dumps(note))
    signal.pause()


def _info(row: Any) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(row["connection_info"])
    return info | {key: row[key] for key in ("auth_username", "auth_password")}


def _by_host(live: Live) -> dict[str, str | None]:
    return {name.rpartition(":")[2]: mode for name, mode in live.modes().items()}


def check() -> None:
    """One host may write, nothing is left to do, and what was flushed is there."""
    note = json.loads(_NOTE.read_text())
    _NOTE.unlink()
    assert note["boot"] != boot()
    api = Api()
    until(api.answers)
    shown = api.must("GET", f"/v3/volumes/{note['volume']}/handover")
    handover = shown["handover"]
    assert handover is None or handover["status"] in ("done", "failed"), handover
    modes = _by_host(Live(note["volume"]))
    writers = [name for name, mode in modes.items() if mode == "rw"]
    assert len(writers) <= 1, modes
    rows = {r["attached_host"]: r for r in rows_of(_DATABASE, "volume_attachment")}
    assert modes == {name: rows[name]["attach_mode"] for name in HOSTS}
    sessions = {name: Host(name).login(note["infos"][name]) for name in HOSTS}
    landed = int(sessions[READER].read(_AT).rstrip(b"."))
    assert landed >= note["acknowledged"], (landed, note["acknowledged"])
    for name, session in sessions.items():
        if name in writers:
            session.write(64, block(f"after {note['step']}"))
        else:
            assert write_protected(session, _AT)
    print(
        f"cut at step {note['step']} with {note['modes']}: after the boot {modes},"
        f" handover {handover and handover['status']}; {note['acknowledged']} writes"
        f" were flushed, {landed} are there",
        flush=True,
    )


def main(argv: list[str]) -> int:
    """Begin, or check."""
    if argv[0] == "check":
        check()
        return 0
    in_background(lambda: begin(int(argv[1])), Path("/var/log/cut-handover"))
    until(_NOTE.exists, "the node has stopped at the step", 200)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
