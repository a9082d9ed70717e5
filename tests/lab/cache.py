# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The lab's cache: a directory per thing built, named after a hash of everything that went into it.

Only whole entries are ever seen: an entry is built under another name and renamed when it is finished.
Builders of the same entry wait for each other; users hold a shared lock, so that nothing in use is pruned.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEEP_UNUSED_SECONDS = 14 * 86400


def directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(os.environ.get("LUNSHARE_LAB_CACHE") or os.path.join(base, "lunshare-lab")).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(inputs: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for each in inputs:
        digest.update(f"{len(each)}:{each}".encode())
    return digest.hexdigest()[:16]


def entry(kind: str, inputs: Iterable[str], build: Callable[[Path], None]) -> Path:
    """The directory of this entry, built by `build(directory)` if nobody has built it yet."""
    path = directory() / f"{kind}-{key(inputs)}"
    with _locked(path.with_name(path.name + ".lock")):
        if not path.exists():
            _build(path, build)
            _prune(kind, path)
    os.utime(path)
    return path


def hold(path: Path) -> int:
    """Keep this entry from being pruned for as long as the returned descriptor is open, here or in a child."""
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _build(path: Path, build: Callable[[Path], None]) -> None:
    half = Path(tempfile.mkdtemp(prefix=f"half-{path.name}-", dir=path.parent))
    try:
        build(half)
        half.rename(path)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _prune(kind: str, fresh: Path) -> None:
    for other in fresh.parent.glob(f"{kind}-*[!.lock]"):
        if other == fresh or time.time() - other.stat().st_mtime < KEEP_UNUSED_SECONDS:
            continue
        descriptor = os.open(other, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
