# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of tests about quotas."""

from __future__ import annotations

from typing import Any

from tests.api.calls import Api

#: The defaults of Cinder; a node of other tests has no quotas.
OPTIONS = "quota_volumes = 10\nquota_snapshots = 10\nquota_gigabytes = 1000"


def limit(api: Api, **limits: Any) -> dict[str, Any]:
    path = f"/os-quota-sets/{api.project}"
    found: dict[str, Any] = api("PUT", path, {"quota_set": limits})["quota_set"]
    return found


def used(api: Api, key: str) -> int:
    """How much the project has; every counter must equal a count of its rows."""
    path = f"/os-quota-sets/{api.project}?usage=True"
    found: dict[str, Any] = api("GET", path)["quota_set"]
    assert found["id"] == api.project
    assert found[key]["reserved"] == 0
    return int(found[key]["in_use"])


def usages(api: Api, *keys: str) -> tuple[int, ...]:
    return tuple(used(api, key) for key in keys)
