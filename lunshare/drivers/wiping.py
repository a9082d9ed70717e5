# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Wipe one deleted disk, step by step, no faster than the operator wants.

What is left to wipe is on the disks. So a step that was interrupted is only repeated,
and the daemon and the driver for Cinder need to store nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from oslo_config import cfg

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.values import Wipe

LOG = logging.getLogger(__name__)

_MIB = 1024**2
_TENTH = 10  # per cent, between two lines of the log

#: The options of a backend section that say how fast its disks are wiped.
OPTIONS: list[cfg.Opt] = [
    cfg.IntOpt(
        "wipe_rate",
        default=100,
        min=0,
        help="MiB per second that a wipe of deleted volumes writes at most. 0 means no"
        " limit. Lower it if a wipe slows hosts down. Raise it if space is freed too"
        " slowly.",
    ),
    cfg.IntOpt(
        "wipe_step",
        default=64,
        min=1,
        help="MiB that one step of a wipe writes. A stop of the daemon waits for one"
        " step.",
    ),
]


def wipe_disk(
    volumes: VolumeDriver,
    disk: Wipe,
    options: Mapping[str, Any],
    stopped: threading.Event,
    step: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Wipe ``disk`` until nothing is left, or ``stopped`` is set.

    ``options`` has ``OPTIONS``. ``step`` is entered around each call of the driver,
    whose errors it may change.
    """
    size = options["wipe_step"] * _MIB
    LOG.info(
        "[%s] wiping: disk=%s size=%s left=%s",
        volumes.name,
        disk.name,
        disk.size,
        disk.left,
    )
    remainder: Wipe | None = disk
    while remainder is not None and not stopped.is_set():
        started, before = time.monotonic(), remainder
        with step():
            remainder = volumes.wipe(disk.name, size)
        if remainder is None:
            LOG.info("[%s] disk wiped: disk=%s", volumes.name, disk.name)
        else:
            _log_progress(volumes.name, before, remainder)
            _pause(options["wipe_rate"], before.left - remainder.left, started, stopped)


def percent(wipe: Wipe) -> int:
    """Return how much of the disk is wiped, in per cent."""
    return 100 if not wipe.size else (wipe.size - wipe.left) * 100 // wipe.size


def _pause(rate: int, wiped: int, started: float, stopped: threading.Event) -> None:
    """Pause, so that no more bytes a second are wiped than ``rate`` MiB."""
    if rate:
        stopped.wait(max(0.0, started + wiped / (rate * _MIB) - time.monotonic()))


def _log_progress(backend: str, before: Wipe, after: Wipe) -> None:
    """Log each tenth."""
    if percent(after) // _TENTH != percent(before) // _TENTH:
        LOG.info("[%s] wiping: disk=%s percent=%s", backend, after.name, percent(after))
