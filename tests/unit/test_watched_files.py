# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Files that change while somebody looks at them again and again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lunshare.agent.watched_files import WatchedFiles
from tests.stands.waiting import until

NEVER = 1e6  # seconds until the next look


@pytest.fixture(name="file")
def existing_file(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_text("first")
    return file


def replace(file: Path) -> None:
    """Put another file with the same bytes at its place, as `mv` does."""
    file.with_suffix(".new").write_bytes(file.read_bytes())
    file.with_suffix(".new").rename(file)


def narrow(file: Path) -> None:
    """Change the mode alone. The clock of files has ticks of some milliseconds."""
    before = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == before:
        file.chmod(0o600)


@pytest.mark.parametrize(
    "change", [replace, narrow, os.unlink, lambda file: file.write_text("longer text")]
)
def test_a_change_is_read_once(file: Path, change: Callable[[Path], object]):
    reads: list[int] = []
    watch = WatchedFiles(lambda: [file], lambda: reads.append(1))
    watch.check()
    assert not reads
    change(file)
    watch.check()
    watch.check()
    assert reads == [1]


def test_a_further_file_is_a_change(tmp_path: Path, file: Path):
    reads: list[int] = []
    watch = WatchedFiles(lambda: sorted(tmp_path.iterdir()), lambda: reads.append(1))
    (tmp_path / "other").touch()
    watch.check()
    assert reads == [1]


def test_a_link_to_another_file_is_a_change(tmp_path: Path, file: Path):
    """As certbot and Kubernetes replace a certificate."""
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(file)
    other.write_text("first")
    reads: list[int] = []
    watch = WatchedFiles(lambda: [link], lambda: reads.append(1))
    link.unlink()
    link.symlink_to(other)
    watch.check()
    assert reads == [1]


def test_files_are_not_looked_at_too_often_unless_forced(file: Path):
    reads: list[int] = []
    watch = WatchedFiles(lambda: [file], lambda: reads.append(1), NEVER)
    replace(file)
    watch.check()
    assert not reads
    watch.force()
    watch.check()
    watch.check()
    assert reads == [1]


def test_a_change_that_raised_is_read_again(file: Path):
    results = iter([MemoryError(), None])

    def read() -> None:
        if error := next(results):
            raise error

    watch = WatchedFiles(lambda: [file], read)
    replace(file)
    with pytest.raises(MemoryError):
        watch.check()
    watch.check()
    assert next(results, "none") == "none"


def test_a_change_while_the_files_are_read_is_read_too(file: Path):
    reads: list[int] = []

    def read() -> None:
        if not reads:
            replace(file)
        reads.append(1)

    watch = WatchedFiles(lambda: [file], read)
    replace(file)
    watch.check()
    watch.check()
    assert reads == [1, 1]


def test_nobody_continues_with_former_contents_while_new_ones_are_read(file: Path):
    """A user that was removed does not come in because another one came first."""
    is_read, is_reading = threading.Event(), threading.Event()
    states: list[bool] = []

    def read() -> None:
        is_reading.set()
        assert is_read.wait(10)

    def look() -> None:
        watch.check()
        states.append(is_read.is_set())

    watch = WatchedFiles(lambda: [file], read)
    replace(file)
    threads = [threading.Thread(target=look) for _ in range(2)]
    threads[0].start()
    assert is_reading.wait(10)
    threads[1].start()
    threads[1].join(0.05)
    is_read.set()
    for thread in threads:
        thread.join(10)
    assert states == [True, True]


def test_nobody_waits_for_the_reader_before_the_next_look_is_due(file: Path):
    is_reading, may_end = threading.Event(), threading.Event()

    def read() -> None:
        is_reading.set()
        assert may_end.wait(10)

    watch = WatchedFiles(lambda: [file], read, NEVER)
    watch.force()
    reader = threading.Thread(target=watch.check)
    reader.start()
    assert is_reading.wait(10)
    watch.check()  # returns
    assert reader.is_alive()
    may_end.set()
    until(lambda: not reader.is_alive(), "the end of the reader", 10)
