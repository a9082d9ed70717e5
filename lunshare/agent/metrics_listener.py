# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses at which Prometheus reads the metrics, and nothing else is served.

They have threads of their own, so they answer while every worker of the API waits. No
identity is asked for: the page has figures and the names of backends, no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oslo_config import cfg

from lunshare.agent import listen_addresses
from lunshare.agent.api.access.origins import Origins
from lunshare.agent.api.faults import Fault
from lunshare.agent.http import listener, tls
from lunshare.agent.http.sockets import KeptSockets
from lunshare.agent.listen_addresses import Address
from lunshare.agent.service.metrics.recorded import CONTENT_TYPE, Metrics

_OPTION = "metrics_listen"
_THREADS = 2
_PATH = "/metrics"
_TEXT = "text/plain; charset=utf-8"


def configured(conf: cfg.ConfigOpts) -> dict[Address, tls.Certificates | None]:
    """Return the addresses of metrics_listen, with the certificate of each.

    :raises StartupError: an address is wrong, or its certificate cannot be used.
    """
    addresses = listen_addresses.of_metrics(conf.metrics_listen)
    return {address: tls.certificates(conf, address, _OPTION) for address in addresses}


def create(
    conf: cfg.ConfigOpts,
    certificates: Mapping[Address, tls.Certificates | None],
    metrics: Metrics,
    sockets: KeptSockets,
) -> listener.HttpServer | None:
    """Return the bound server of ``configured``, or None if there is no address.

    :raises StartupError: an address cannot be bound.
    """
    if not certificates:
        return None
    addresses = list(certificates)
    origins = Origins(addresses, conf.public_endpoint, conf.allowed_hosts)
    return listener.serve(
        MetricsApp(metrics, origins),
        addresses,
        _THREADS,
        certificates=certificates.get,
        option=_OPTION,
        listen=sockets.listening_socket,
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
