# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Wipe deleted disks of one backend in a thread, after a delete and after a start."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from lunshare.drivers import wiping
from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.errors import DriverError

LOG = logging.getLogger(__name__)

_PERIOD = 60.0  # seconds until what failed is tried again


class BackgroundWipe:
    """The thread, which is started once."""

    def __init__(self, volumes: VolumeDriver, options: Mapping[str, Any]) -> None:
        self._volumes, self._options = volumes, options
        self._more, self._never = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start with what an earlier process has left; a second call does nothing."""
        if self._thread is None and self._volumes.abilities.wipes_deleted:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Check for deleted disks at once."""
        self._more.set()

    def _run(self) -> None:
        while True:
            self._more.clear()
            try:
                for disk in self._volumes.wipes():
                    wiping.wipe_disk(self._volumes, disk, self._options, self._never)
            except DriverError as error:
                LOG.error("[%s] wipe failed: %s", self._volumes.name, error)
            except Exception:
                LOG.exception("[%s] wipe failed unexpectedly", self._volumes.name)
            self._more.wait(_PERIOD)
