# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The page that Prometheus reads."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from lunshare.agent.service.metrics.recorded import Recorded

#: The text format of Prometheus.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What a daemon has recorded, and what it collects on a scrape."""

    def __init__(self, recorded: Recorded, *collectors: Collector) -> None:
        self._registry = recorded.registry
        for collector in collectors:
            self._registry.register(collector)

    def page(self) -> bytes:
        """Return all figures, in the format of CONTENT_TYPE."""
        return generate_latest(self._registry)
