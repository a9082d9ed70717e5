# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses at which Prometheus reads the metrics, and nothing else is served.

They have threads of their own, so they answer while every worker of the API waits. No
identity is asked for: the page has figures and the names of backends, no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from lunshare.agent import listen_addresses, listener, tls
from lunshare.agent.api.faults import Fault
from lunshare.agent.api.origins import Origins
from lunshare.agent.service.metrics.page import CONTENT_TYPE, Metrics

_THREADS = 2
_PATH = "/metrics"
_TEXT = "text/plain; charset=utf-8"


def create(conf: cfg.ConfigOpts, metrics: Metrics) -> listener.Server | None:
    """Return the bound server of metrics_listen, or None if the option is empty.

    :raises StartupError: an address cannot be bound, or its certificate not used.
    """
    addresses = listen_addresses.of_metrics(conf.metrics_listen)
    if not addresses:
        return None
    certificates = {each: tls.certificates(conf, each) for each in addresses}
    origins = Origins(addresses, conf.public_endpoint, conf.allowed_hosts)
    return listener.serve(
        MetricsApp(metrics, origins),
        addresses,
        _THREADS,
        certificates=certificates.get,
    )


class MetricsApp:
    """The WSGI application of these addresses."""

    def __init__(self, metrics: Metrics, origins: Origins) -> None:
        self._metrics, self._origins = metrics, origins

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer GET /metrics."""
        status, kind, body = self._answer(environ)
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: dict[str, Any]) -> tuple[str, str, bytes]:
        if environ["PATH_INFO"] != _PATH:
            return "404 Not Found", _TEXT, b"Only /metrics is served here.\n"
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", _TEXT, b"Use GET.\n"
        try:
            self._origins.check(environ.get("HTTP_HOST"), environ.get("HTTP_ORIGIN"))
        except Fault as refused:
            return "403 Forbidden", _TEXT, f"{refused.message}\n".encode()
        return "200 OK", CONTENT_TYPE, self._metrics.page()
