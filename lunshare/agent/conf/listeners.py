# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of who may use the API, and where ([DEFAULT] and [tls])."""

from __future__ import annotations

from oslo_config import cfg

#: Where the unit's daemon may create a socket, and where the client finds it.
SOCKET = "/run/lunshared/api.sock"

CLI_OPTIONS = [
    cfg.ListOpt(
        "listen",
        default=[f"unix:{SOCKET}"],
        help="Addresses of the API, with a comma between two: unix:PATH, HOST:PORT or"
        " https://HOST:PORT; an IPv6 HOST is in [ ]. root and the members of group"
        " lunshare may use the socket, as administrators. Every other address needs"
        " auth_strategy http_basic or keystone, and https unless it is loopback.",
    )
]

OPTIONS = [
    cfg.StrOpt(
        "auth_strategy",
        default="noauth",
        choices=[
            ("noauth", "everyone is an administrator: see noauth_on_loopback"),
            ("http_basic", "a user and a password of http_basic_auth_user_file"),
            ("keystone", "a token of Keystone: see [keystone_authtoken]"),
        ],
        help="How clients prove their identity, except those of a unix socket.",
    ),
    cfg.BoolOpt(
        "noauth_on_loopback",
        default=False,
        help="Accept auth_strategy = noauth on a loopback address. Every local account"
        " of this machine is then an administrator of all volumes. Only for tests and"
        " demonstrations, on a machine without other users.",
    ),
    cfg.StrOpt(
        "http_basic_auth_user_file",
        default="/etc/lunshare/users",
        help="Users of auth_strategy = http_basic: a line NAME:BCRYPT:ROLES:PROJECT for"
        " each. `lunshare user` writes it. A change is effective at once.",
    ),
    cfg.ListOpt(
        "metrics_listen",
        default=[],
        help="Addresses at which only /metrics is served, for Prometheus: HOST:PORT or"
        " https://HOST:PORT. Everyone who reaches one may read it: the names of"
        " backends, their capacity, numbers of volumes and requests; no secret, no id"
        " and no project. Prometheus must reach it by a name of allowed_hosts or by"
        " the address itself. Without an address the API alone has /metrics, for"
        " administrators and whoever else policy lunshare:metrics names.",
    ),
    cfg.ListOpt(
        "allowed_hosts",
        default=[],
        help="Names by which clients reach this node, as in a URL, without a port."
        " Always allowed are the addresses of listen, localhost, and the host of"
        " public_endpoint. A request with another Host or Origin header gets 403,"
        " since a web page in a browser may have sent it.",
    ),
]

TLS_OPTIONS = [
    cfg.StrOpt(
        "cert_file",
        help="PEM file with the certificate of every https:// address, then those of"
        " its issuers. A section [tls:HOST:PORT] has the files of one address. The"
        " files are read again when they change, and at SIGHUP.",
    ),
    cfg.StrOpt(
        "key_file",
        help="PEM file with the private key of the certificate, without a password."
        " The user of the daemon must be able to read it.",
    ),
]


def tls_section(conf: cfg.ConfigOpts, host: str, port: int) -> str:
    """Return the section with the certificate of an address; register it."""
    own = f"tls:{host}:{port}"
    conf.register_opts(TLS_OPTIONS, own)
    return own if conf[own].cert_file or conf[own].key_file else "tls"
