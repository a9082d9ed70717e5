# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A fake root helper with scripted output of LVM's commands (lvm2 2.03.16)."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.errors import CommandFailed, DriverError
from lunshare.drivers.lvm import LvmVolumes, claim
from lunshare.drivers.values import Snapshot
from lunshare.helper.lvm import changes
from lunshare.helper.served import Served
from tests.unit import filter_rules

UUID = "11111111-2222-4333-8444-555555555555"
OTHER = "11111111-2222-4333-8444-666666666666"
SNAPSHOT = Snapshot(OTHER, UUID, 8 << 20)
# The real directory of lock files is not writable for tests, and a container has no
# machine id.
_DIRECTORY = Path(tempfile.mkdtemp(prefix="lunshare-claims-"))
claim.CLAIM_DIRECTORY = _DIRECTORY / "claims"
claim.CLAIM_DIRECTORY.mkdir(mode=0o700)
claim.MACHINE_ID = _DIRECTORY / "machine-id"
claim.MACHINE_ID.write_text(f"{'3' * 32}\n")
# This group does not exist on the machine, so no disk is ever active. Each process
# locks its group, and tests run in several processes.
GROUP = f"lunshare-unit-{os.getpid()}"
_ALLOWED = filter_rules.load(_DIRECTORY / "bin", Served(groups=(GROUP,), manage=True))

LVS = """
  {
      "report": [
          {
              "lv": [
                  {"lv_name":"pool", "lv_size":"8589934592", "pool_lv":""},
                  {"lv_name":"volume-UUID", "lv_size":"8388608", "pool_lv":"pool"},
                  {"lv_name":"volume-UUID.new", "lv_size":"8388608", "pool_lv":""},
                  {"lv_name":"volume-mine", "lv_size":"4194304", "pool_lv":"pool"}
              ]
          }
      ]
  }
""".replace("UUID", UUID)
POOL = """
  {
      "report": [
          {
              "lv": [
                  {"lv_size":"8589934592", "segtype":"%s", "zero":"%s",
                   "transaction_id":"9"}
              ]
          }
      ]
  }
"""
THIN_POOL = POOL % ("thin-pool", "zero")
VG = """{"report":[{"vg":[{"vg_size":"100", "vg_free":"%s", "vg_extent_size":"4",
 "vg_tags":"%s", "pv_name":"/dev/loop9", "pv_mda_used_count":"1",
 "vg_missing_pv_count":"0"}]}]}"""
GONE = f'  Failed to find logical volume "{GROUP}/volume-{UUID}"\n'


def commit(offset: int, checksum: int) -> dict[str, int]:
    """The answer of lvm.commit."""
    return {"offset": offset, "size": 512, "checksum": checksum}


def pool_status(data: float, metadata: float, mode: str = "rw") -> str:
    """The answer of lvm.pool for an active pool that full, in percent."""
    used = f"{metadata * 100:.0f}/10000 {data * 100:.0f}/10000"
    return f"9 {used} - {mode} discard_passdown"


class Scripted:
    """A root helper that returns one output for each program, if rootwrap.d allows it.

    ``pool`` is the status of the thin pool, None while it is not active; ``mapped``
    that of a thin volume.
    """

    def __init__(self, pool: str | None = None, **answers: str | Exception) -> None:
        self.pool, self.mapped = pool, "0 -"
        self._answers = {"vgs": VG % (50, ""), **answers}
        self.commit: dict[str, int] | Exception | None = commit(8192, 7)
        self.commands: list[tuple[str, ...]] = []

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        _ALLOWED.command(argv)
        self.commands.append(argv)
        answer = self._answers[argv[0]]
        if isinstance(answer, str):
            return answer
        raise answer

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        self.commands.append((verb,))
        if verb == "lvm.pool":
            assert arguments == {"group": GROUP, "pool": "pool"}
            return self.pool
        if verb == "lvm.mapped":
            assert arguments["group"] == GROUP
            return self.mapped
        assert (verb, arguments) == ("lvm.commit", {"device": "/dev/loop9"})
        if isinstance(self.commit, Exception):
            raise self.commit
        return self.commit


def failed(stderr: str) -> CommandFailed:
    return CommandFailed(("lvm",), 5, stderr)


def full(stderr: str) -> DriverError:
    """What the helper answers when lvcreate fails with this message."""
    return changes.failure(("lvcreate", GROUP), 5, stderr)


def driver(root: Scripted, **given: Any) -> LvmVolumes:
    given = {"volume_group": GROUP, "lvm_pool": "pool", "command_timeout": 0.01} | given
    return LvmVolumes("unit", defaults(LvmVolumes, **given), root)


class Answering(Scripted):
    """Returns ``one`` if lvs is run on one volume. The thin pool is half full."""

    def __init__(
        self,
        one: str,
        pool: str | None = "9 1079/10000 5000/10000 - rw discard_passdown",
        **answers: str | Exception,
    ) -> None:
        super().__init__(pool, **answers)
        self._one = one

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        answer = super().run(*argv)
        return self._one if argv[0] == "lvs" and "/" in argv[-1] else answer


def row(name: str, **given: str) -> str:
    fields = {
        "lv_name": name,
        "lv_size": "8388608",
        "pool_lv": "",
        "origin": "",
        "lv_tags": "",
        "lv_layout": "linear",
        "lv_role": "public",
        "lv_permissions": "writeable",
        "lv_device_open": "",
        "lv_snapshot_invalid": "unknown",
        "lv_merging": "",
    }
    return json.dumps(fields | given)


def rows(*given: str) -> str:
    return f'{{"report":[{{"lv":[{",".join(given)}]}}]}}'


def thick(root: Scripted, **given: Any) -> LvmVolumes:
    return driver(root, lvm_type="default", **given)
