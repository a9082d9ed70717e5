# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Copy an SQLite database consistently while it is written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from lunshare.agent.model.errors import DatabaseFailed, Invalid

_PREFIX, _SUFFIX, _PART = "lunshare-", ".sqlite", ".part"
_WAIT_SECONDS = 30.0


def path_of(url: str) -> Path:
    """Return the file of an SQLite URL.

    :raises Invalid: another kind of database, or one in memory.
    """
    parsed = sa.engine.make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise Invalid(
            "[database] connection is not an SQLite file: use that database's own"
            " backup, such as pg_dump"
        )
    return Path(parsed.database)


def copy(source: Path, directory: Path) -> Path:
    """Write a copy into ``directory``, named after the time (UTC); return its path.

    On return the copy is complete, checked and on the disk. Its mode is 0600, since
    it has CHAP secrets. After an error no part of it is left.

    :raises DatabaseFailed: the source cannot be read, or the copy cannot be written.
    """
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    copied = directory / f"{_PREFIX}{moment}{_SUFFIX}"
    part = copied.with_suffix(_PART)
    old = os.umask(0o077)
    try:
        with _only_writer(directory):
            _remove_parts(directory)
            _vacuum(source, part)
            _check(part)
            _sync(part)
            part.rename(copied)
            _sync(directory)
    except (sqlite3.Error, OSError) as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise DatabaseFailed(
            f"the backup of {source} to {directory} failed: {error}"
        ) from error
    finally:
        os.umask(old)
    return copied


def expire(directory: Path, keep: int, newest: Path) -> list[Path]:
    """Delete the oldest copies beyond ``keep``; return the deleted paths.

    ``newest`` is kept: after the clock was set back, others have later names.
    """
    copies = sorted(set(directory.glob(f"{_PREFIX}*{_SUFFIX}")) - {newest})
    deleted = copies[: max(0, len(copies) + 1 - keep)]
    for path in deleted:
        path.unlink()
    return deleted


@contextlib.contextmanager
def _only_writer(directory: Path) -> Iterator[None]:
    """Wait until no other process writes a copy into this directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_parts(directory: Path) -> None:
    """Remove what a killed process has left, while there is no other writer."""
    for path in directory.glob(f"{_PREFIX}*{_PART}*"):
        path.unlink()


def _vacuum(source: Path, part: Path) -> None:
    # mode=rw: a wrong path must not create an empty database.
    url = f"{source.resolve().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(url, _WAIT_SECONDS, uri=True)) as opened:
        opened.execute("VACUUM INTO ?", (str(part),))


def _check(part: Path) -> None:
    with contextlib.closing(sqlite3.connect(part)) as opened:
        (result,) = opened.execute("PRAGMA integrity_check").fetchone()
    if result != "ok":
        raise sqlite3.DatabaseError(f"the copy is damaged: {result}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
