# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a copy with its proof costs beside dd(1), of the same bytes in the same run.

``python -m tests.bench.copies --part copies`` copies a file of this directory's file
system. With ``--group NAME`` the node's root helper copies a thick LVM snapshot, as for
a clone or a revert, and a thin volume to a thick one, as for a migration or a fill; as
root on a node. The bytes are random. dd reads and writes past the caches in steps of
1 MiB, and flushes at its end.
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
    parser.add_argument("--pool", default="lunshare-pool", help="its thin pool")
    options = parser.parse_args(argv)
    if options.group:
        write_part(options.part, _figures_of_lvm(options.group, options.pool))
        return
    with _file() as work:
        path = Path(f"build/bench-{options.part}.json")
        write(path, _figures("files", work, _FILE_SIZE, _MOST))


def _figures_of_lvm(group: str, pool: str) -> list[Figure]:
    most, figures = _MOST_IN_A_GUEST, []
    with _snapshot(group) as work:
        figures += _figures("thick snapshot to thick", work, _DISK_SIZE, most)
    with _migration(group, pool) as work:
        figures += _figures("thin to thick", work, _DISK_SIZE, most)
    return figures


def _figures(what: str, work: Work, size: int, most: float) -> list[Figure]:
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(_ROUNDS):
        for name, step in work.items():
            times[name].append(timed(step))
    dd, copy = median_ms(times["dd"]), median_ms(times["copy"])
    amount = f"{what}, {size // _MIB:,} MiB"
    return [
        say(Figure(f"dd, {amount}", dd, "ms")),
        say(Figure(f"copy and proof, {amount}", copy, "ms")),
        say(Figure(f"copy and proof, {what}, times dd", copy / dd, "times", most=most)),
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
def _snapshot(group: str) -> Iterator[Work]:
    """A clone or a revert of a thick volume: a snapshot's bytes in a new part."""
    volume, other = _new_name(), _new_name()
    part, snapshot = f"{_new_name()}.new", f"_snapshot-{uuid.uuid4()}"
    with _removed(group, snapshot, volume, part, other):
        for name in (volume, part, other):
            _create_thick(group, name)
        _fill(f"/dev/{group}/{volume}", _DISK_SIZE)
        size = ("-L", f"{_DISK_SIZE}b")
        _run("lvcreate", "-qq", "-y", "-s", *size, "-n", snapshot, f"{group}/{volume}")
        source = f"/dev/{group}/{snapshot}"
        asked = {"source": source, "target": f"/dev/{group}/{part}"}
        yield {
            "dd": lambda: _dd(source, f"/dev/{group}/{other}"),
            "copy": lambda: _call("lvm.copy", length=_DISK_SIZE, **asked),
        }


@contextmanager
def _migration(group: str, pool: str) -> Iterator[Work]:
    """A migration or a fill: a thin volume's bytes in a thick one."""
    source, target, other = (_new_name() for _ in range(3))
    with _removed(group, source, target, other):
        size = ("-V", f"{_DISK_SIZE}b", "-T", f"{group}/{pool}")
        _run("lvcreate", "-qq", "-y", "-Wn", *size, "-n", source)
        for name in (target, other):
            _create_thick(group, name)
        _fill(f"/dev/{group}/{source}", _DISK_SIZE)
        asked = {
            "source": asdict(_block(group, source)),
            "target": asdict(_block(group, target)),
        }
        yield {
            "dd": lambda: _dd(asked["source"]["path"], f"/dev/{group}/{other}"),
            "copy": lambda: _call("disk.copy", **asked),
        }


def _new_name() -> str:
    return f"volume-{uuid.uuid4()}"


def _block(group: str, name: str) -> Disk:
    return Disk(name.removeprefix("volume-"), f"/dev/{group}/{name}", _DISK_SIZE)


def _create_thick(group: str, name: str) -> None:
    size = ("-L", f"{_DISK_SIZE}b")
    _run("lvcreate", "-qq", "-y", "-Wn", "-Zn", *size, "-n", name, group)


def _call(verb: str, **asked: object) -> None:
    Helper(_SOCKET).call(verb, timeout=60, **asked)


@contextmanager
def _removed(group: str, *names: str) -> Iterator[None]:
    try:
        yield
    finally:
        for name in names:
            argv = ["lvremove", "-qq", "-y", f"{group}/{name}"]
            subprocess.run(argv, check=False, capture_output=True)


def _fill(path: str, size: int) -> None:
    _run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size // _MIB}")


def _dd(source: object, target: str) -> None:
    past = ("iflag=direct", "oflag=direct", "conv=notrunc,fsync")
    _run("dd", f"if={source}", f"of={target}", "bs=1M", *past)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


if __name__ == "__main__":
    main(sys.argv[1:])
