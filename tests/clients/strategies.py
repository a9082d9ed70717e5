# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the clients say who they are: one line per auth strategy.

Every client is asked with every line. docs/clients.md has a column for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_PROJECT = "default"


@dataclass(frozen=True)
class Strategy:
    """One auth strategy. {endpoint} in a value is that of the daemon, with /v3.

    name: auth_strategy of the daemon.
    options: lines of its section DEFAULT.
    project: the id of the project of every client.
    environ: of openstackclient, the SDK and Ansible.
    cinder: environ of the command cinder.
    nova: options of Nova's section [cinder].
    """

    name: str
    options: str
    project: str
    environ: Mapping[str, str]
    cinder: Mapping[str, str]
    nova: Mapping[str, str]

    def __str__(self) -> str:
        return self.name


def filled(values: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """These values for the daemon with that endpoint."""
    return {name: text.format(endpoint=endpoint) for name, text in values.items()}


TABLE = (
    Strategy(
        name="noauth",
        options="auth_strategy = noauth\nnoauth_on_loopback = true",
        project=_PROJECT,
        environ={"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "{endpoint}"},
        cinder={
            "OS_AUTH_TYPE": "noauth",
            "CINDER_ENDPOINT": "{endpoint}",
            "CINDER_USER_ID": "admin",
            "CINDER_PROJECT_ID": _PROJECT,
        },
        nova={
            "auth_type": "none",
            "endpoint": "{endpoint}",
            "endpoint_template": f"{{endpoint}}/{_PROJECT}",
        },
    ),
)
