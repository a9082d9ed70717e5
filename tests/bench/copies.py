# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a copy with its proof costs beside dd(1), of the same bytes in the same run.

``python -m tests.bench.copies --part copies`` copies a file of this directory's file
system. With ``--group NAME`` it copies a thick LVM snapshot by the node's root helper,
as a clone does; as root on a node. Every byte differs from zero. dd reads and writes
past the caches in steps of 1 MiB, and flushes at its end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lunshare.drivers.helper_client import Helper
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper.copying import CopyVerbs
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.served import Served
from tests.bench.figures import (
    Figure,
    median_ms,
    part_parser,
    say,
    timed,
    write,
    write_part,
)

_SOCKET = "/run/lunshare/helper.sock"
_MIB = 1024**2
_FILE_SIZE, _DISK_SIZE = 1024 * _MIB, 256 * _MIB
_ROUNDS = 5
#: The copy reads and writes once, as dd; its proof reads both sides once more.
_MOST, _MOST_IN_A_GUEST = 2.2, 3.0

#: By the names dd and copy.
Work = dict[str, Callable[[], object]]


def main(argv: list[str]) -> None:
    """Print the figures, and write bench-PART.json into build/."""
    parser = part_parser("copies")
    parser.add_argument("--group", help="the volume group of a node")
    options = parser.parse_args(argv)
    if options.group:
        with _thick_snapshot(options.group) as work:
            write_part(options.part, _figures(work, _DISK_SIZE, _MOST_IN_A_GUEST))
        return
    with _file() as work:
        path = Path(f"build/bench-{options.part}.json")
        write(path, _figures(work, _FILE_SIZE, _MOST))


def _figures(work: Work, size: int, most: float) -> list[Figure]:
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(_ROUNDS):
        for name, step in work.items():
            times[name].append(timed(step))
    dd, copy = median_ms(times["dd"]), median_ms(times["copy"])
    amount = f"{size // _MIB:,} MiB"
    return [
        say(Figure(f"dd, {amount}", dd, "ms")),
        say(Figure(f"copy and proof, {amount}", copy, "ms")),
        say(Figure("copy and proof, times dd", copy / dd, "times", most=most)),
    ]


@contextmanager
def _file() -> Iterator[Work]:
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name).resolve()
        source, target, other = (_disk(directory) for _ in range(3))
        _fill(source.path, _FILE_SIZE)
        verbs = CopyVerbs(Served(directories=(str(directory),)), is_exported)
        asked = {"source": asdict(source), "target": asdict(target)}
        yield {
            "dd": lambda: _dd(source.path, other.path),
            "copy": lambda: verbs.copy(asked, 60),
        }


def _disk(directory: Path) -> Disk:
    identity = str(uuid.uuid4())
    path = directory / f"volume-{identity}"
    with path.open("wb") as file:
        file.truncate(_FILE_SIZE)
    return Disk(identity, str(path), _FILE_SIZE, DiskKind.FILE)


@contextmanager
def _thick_snapshot(group: str) -> Iterator[Work]:
    identity = uuid.uuid4()
    names = f"volume-{identity}", f"volume-{uuid.uuid4()}.new", f"bench-{identity}"
    volume, part, other = names
    snapshot = f"_snapshot-{uuid.uuid4()}"
    size = f"{_DISK_SIZE}b"
    try:
        for name in names:
            _run("lvcreate", "-qq", "-y", "-Wn", "-Zn", "-L", size, "-n", name, group)
        _fill(f"/dev/{group}/{volume}", _DISK_SIZE)
        _run(
            "lvcreate",
            "-qq",
            "-y",
            "-s",
            "-L",
            size,
            "-n",
            snapshot,
            f"{group}/{volume}",
        )
        asked = {
            "source": f"/dev/{group}/{snapshot}",
            "target": f"/dev/{group}/{part}",
            "length": _DISK_SIZE,
        }
        helper = Helper(_SOCKET)
        yield {
            "dd": lambda: _dd(asked["source"], f"/dev/{group}/{other}"),
            "copy": lambda: helper.call("lvm.copy", timeout=60, **asked),
        }
    finally:
        for name in (snapshot, *names):
            subprocess.run(
                ["lvremove", "-qq", "-y", f"{group}/{name}"],
                check=False,
                capture_output=True,
            )


def _fill(path: str, size: int) -> None:
    _run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size // _MIB}")


def _dd(source: object, target: str) -> None:
    past = ("iflag=direct", "oflag=direct", "conv=notrunc,fsync")
    _run("dd", f"if={source}", f"of={target}", "bs=1M", *past)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


if __name__ == "__main__":
    main(sys.argv[1:])
