# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What it costs to know how full LVM is, with ever more logical volumes.

``python -m tests.bench.lvm_stats``, as root on a node. Pool stats are what the timer
does for a backend: check, capacity, wipes. The first update after a change lists the
volumes, the next ones do not.

The volumes are real in LVM's metadata, put there by vgcfgrestore(8): to make
5,000 one by one takes an emulated machine hours. They are not active; a link
stands for the node of each, or the update would activate them all.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.lvm import LvmVolumes
from tests.bench.figures import Figure, median_ms, part_parser, say, timed, write_part

_SOCKET = "/run/lunshare/helper.sock"
_LEVELS = (10, 1_000, 5_000)
_ROUNDS = 5
#: An update without a change takes a tenth of a second, and varies.
_STEADY_ROUNDS = 25
#: Without a change no volume is read.
_GROWTH = 1.5
_GIB = 1024**3
_EXTENT = "4m"
#: 5,000 volumes are 3 MB of text, of which LVM stores two.
_METADATA = "64m"

_VOLUME = """
 {name} {{
  id = "{id}"
  status = ["READ", "WRITE", "VISIBLE"]
  flags = []
  segment_count = 1
  segment1 {{
   start_extent = 0
   extent_count = 1
   {lies}
  }}
 }}
"""
_LIES: dict[str, Callable[[str, int], str]] = {
    "thin": lambda group, number: (
        f'type = "thin" thin_pool = "{group}-pool" transaction_id = 0'
        f" device_id = {number}"
    ),
    "default": lambda group, number: (
        f'type = "striped" stripe_count = 1 stripes = ["pv0", {number + 600}]'
    ),
}


class Group:
    """A volume group whose volumes are written into its metadata."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.name, self._kind = f"lunshare-bench-{kind}", kind
        store = directory / kind
        with store.open("wb") as file:
            file.truncate(64 * _GIB)
        self._loop = _run("losetup", "--find", "--show", str(store)).strip()
        how = ("--metadatasize", _METADATA, "-s", _EXTENT)
        _run("vgcreate", "--setautoactivation", "n", *how, self.name, self._loop)
        pool = ("--type", "thin-pool", "-L", "2g", "-n", f"{self.name}-pool")
        _run("lvcreate", "-y", *pool, self.name)
        self._backup = directory / f"{kind}.cfg"
        self._nodes = Path("/dev", self.name)
        _run("vgcfgbackup", "-f", str(self._backup), self.name)
        self._empty = self._backup.read_text()
        options = {"volume_group": self.name, "lvm_type": kind}
        self.driver = LvmVolumes(
            "bench", defaults(LvmVolumes, **options), Helper(_SOCKET)
        )

    def fill(self, count: int) -> None:
        """Create ``count`` volumes in the metadata; the earlier ones are gone."""
        names = [f"volume-{uuid.uuid4()}" for _ in range(count)]
        lies = _LIES[self._kind]
        texts = (
            _VOLUME.format(name=name, id=_lvm_id(), lies=lies(self.name, number))
            for number, name in enumerate(names, 1)
        )
        head, _, rest = self._empty.partition("logical_volumes {")
        self._backup.write_text(f"{head}logical_volumes {{{''.join(texts)}{rest}")
        _run("vgcfgrestore", "--force", "--yes", "-f", str(self._backup), self.name)
        self._nodes.mkdir(exist_ok=True)
        for name in names:
            (self._nodes / name).symlink_to("/dev/null")

    def pool_stats(self) -> None:
        """Update the pool stats, as the daemon's timer does."""
        self.driver.check()
        self.driver.capacity()
        self.driver.wipes()

    def alone(self) -> None:
        """One LVM command, which reads all metadata of the group."""
        _run("vgs", "-o", "vg_free", self.name)

    def pool_stats_after_change(self) -> float:
        """Seconds of an update after a change of the group."""
        _run("vgchange", "--addtag", f"bench-{uuid.uuid4().hex}", self.name)
        return timed(self.pool_stats)

    def close(self) -> None:
        """Remove the group; only its pool is active."""
        self._backup.write_text(self._empty)
        _run("vgcfgrestore", "--force", "--yes", "-f", str(self._backup), self.name)
        _run("vgremove", "-qq", "--force", "--yes", self.name)
        _run("losetup", "--detach", self._loop)
        shutil.rmtree(self._nodes, ignore_errors=True)


def figures(directory: Path) -> Iterator[Figure]:
    """Thin, then thick."""
    for kind, words in _WORDS.items():
        group = Group(kind, directory)
        times = {count: _level(group, count) for count in _LEVELS}
        # Once more with the fewest, to separate effects of time.
        for name, more in _level(group, _LEVELS[0]).items():
            times[_LEVELS[0]][name] += more
        group.close()
        for count, measured in times.items():
            for name, seconds in measured.items():
                where = f"{words}, {count:,} volumes"
                yield Figure(f"{name}, {where}", median_ms(seconds), "ms")
        most, fewest = (median_ms(times[_LEVELS[at]]["pool stats"]) for at in (-1, 0))
        name = f"pool stats, {words}, most volumes / fewest"
        yield Figure(name, most / fewest, "", most=_GROWTH)


def _level(group: Group, count: int) -> dict[str, list[float]]:
    """Seconds of each, with ``count`` volumes in the group."""
    group.fill(count)
    return {
        "pool stats after a change": [
            group.pool_stats_after_change() for _ in range(_ROUNDS)
        ],
        "pool stats": [timed(group.pool_stats) for _ in range(_STEADY_ROUNDS)],
        "vgs alone": [timed(group.alone) for _ in range(_ROUNDS)],
    }


_WORDS = {"thin": "LVM thin", "default": "LVM thick"}


def main(argv: list[str]) -> None:
    """Print them, and write bench-PART.json into the repository's build/."""
    part = part_parser("lvm").parse_args(argv).part
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        found = [say(figure) for figure in figures(Path(directory))]
    write_part(part, found)


def _lvm_id() -> str:
    """32 characters, parted as LVM parts them."""
    digits, parts = uuid.uuid4().hex, (0, 6, 10, 14, 18, 22, 26, 32)
    return "-".join(digits[a:b] for a, b in itertools.pairwise(parts))


def _run(*argv: str) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
