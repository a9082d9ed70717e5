# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The lab's cache: one directory per entry, named after all inputs of its build.

Only complete entries are visible: an entry is built under another name and renamed at
the end. Builders of the same entry wait for each other. Users hold a shared lock, so
an entry in use is not removed.
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

KEEP_UNUSED_SECONDS = 7 * 86400  # two kernels with all they need use 3 GB


def directory() -> Path:
    """The directory of the cache, which is never in the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    chosen = os.environ.get("LUNSHARE_LAB_CACHE")
    path = Path(chosen or os.path.join(base, "lunshare-lab")).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def entry(kind: str, inputs: Iterable[str], build: Callable[[Path], None]) -> Path:
    """The directory of this entry, built by `build(directory)` if it is missing.

    It is locked as long as this process and the QEMU that it starts live.
    """
    path = directory() / f"{kind}-{_key(inputs)}"
    with locked(path.name):
        if not path.exists():
            _build(path, build)
            _prune(path)
        os.utime(path)
        _hold(path)
    return path


def _key(inputs: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for each in inputs:
        digest.update(f"{len(each)}:{each}".encode())
    return digest.hexdigest()[:16]


def _hold(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def _build(path: Path, build: Callable[[Path], None]) -> None:
    half = Path(tempfile.mkdtemp(prefix=f"half-{path.name}-", dir=path.parent))
    half.chmod(0o755)
    try:
        build(half)
        half.rename(path)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _prune(fresh: Path) -> None:
    """Remove entries without recent use, and what a killed builder left."""
    for other in fresh.parent.iterdir():
        unused = time.time() - other.stat().st_mtime
        if other != fresh and other.is_dir() and unused > KEEP_UNUSED_SECONDS:
            _remove(other)


def _remove(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        return  # a guest runs on it
    finally:
        os.close(descriptor)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of this name against every other lab run of this user."""
    with open(directory() / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
