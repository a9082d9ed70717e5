# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the clients say who they are, for each auth strategy of the daemon.

Every client is asked with every strategy. docs/clients.md has a column for each, and
these settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """One auth strategy. A name in braces in a value is known when the daemon runs.

    environ: of openstackclient, the SDK and Ansible.
    cinder: environ of the command cinder.
    nova: nova.conf.
    """

    environ: Mapping[str, str]
    cinder: Mapping[str, str]
    nova: str


_LOGIN = {
    "OS_AUTH_URL": "{keystone}",
    "OS_USERNAME": "{user}",
    "OS_PASSWORD": "{password}",
    "OS_PROJECT_NAME": "{project_name}",
    "OS_USER_DOMAIN_ID": "default",
    "OS_PROJECT_DOMAIN_ID": "default",
}
#: Cinder's client for a node without Keystone.
_NO_KEYSTONE = {
    "OS_AUTH_TYPE": "noauth",
    "CINDER_USER_ID": "{user}",
    "CINDER_PROJECT_ID": "{project}",
}

TABLE: Mapping[str, Strategy] = {
    "noauth": Strategy(
        environ={"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "http://{address}/v3"},
        cinder={**_NO_KEYSTONE, "CINDER_ENDPOINT": "http://{address}/v3"},
        nova="""
[cinder]
auth_type = none
endpoint = http://{address}/v3
endpoint_template = http://{address}/v3/{project}
""",
    ),
    "http_basic": Strategy(
        environ={
            "OS_AUTH_TYPE": "http_basic",
            "OS_ENDPOINT": "http://{address}/v3",
            "OS_USERNAME": "{user}",
            "OS_PASSWORD": "{password}",
        },
        # Its option --os-endpoint is in the way of its plugin http_basic.
        cinder={
            **_NO_KEYSTONE,
            "CINDER_ENDPOINT": "http://{user}:{password}@{address}/v3",
        },
        nova="""
[cinder]
auth_type = http_basic
username = {user}
password = {password}
endpoint = http://{address}/v3
endpoint_template = http://{address}/v3/{project}
""",
    ),
    "keystone": Strategy(
        environ={"OS_AUTH_TYPE": "password", **_LOGIN},
        cinder=_LOGIN,
        nova="""
[cinder]
endpoint_template = http://{address}/v3/%(project_id)s
[service_user]
send_service_user_token = true
auth_type = password
auth_url = {keystone}
username = {service}
password = {password}
user_domain_id = default
project_name = service
project_domain_id = default
""",
    ),
}
