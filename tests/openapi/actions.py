# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A body that makes sense for each action: random ones are mostly refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.openapi.population import CONNECTOR, KEY, Population

Body = Callable[[Population, Random], Any]


def _plain(value: Any = None) -> Body:
    return lambda population, chances: value


def _with(name: str, resource: str) -> Body:
    return lambda population, chances: {name: population.of(resource)}


def _flag(name: str) -> Body:
    return lambda population, chances: {name: chances.choice([True, False, "true"])}


def _retype(population: Population, chances: Random) -> Any:
    policy = chances.choice(["never", "on-demand"])
    kind = chances.choice(["types in use", "types that share"])
    return {"new_type": population.of(kind), "migration_policy": policy}


def _migrate(population: Population, chances: Random) -> Any:
    host = chances.choice([population.host, population.other_host])
    return {"host": f"{host}#{host.partition('@')[2]}"}


def _extend(population: Population, chances: Random) -> Any:
    return {"new_size": chances.choice([2, 3, 4, 5, "6"])}


def _attach(population: Population, chances: Random) -> Any:
    mode = chances.choice(["ro", "rw"])
    return {"mountpoint": "/dev/vdb", "host_name": "fuzz", "mode": mode}


def _attach_hosts(population: Population, chances: Random) -> Any:
    key = chances.choice(["one", "two", "three"])
    return {"key": key, "mode": chances.choice(["ro", "rw"]), "hosts": [CONNECTOR]}


_CONNECT = _plain({"connector": CONNECTOR})
_VOLUME: Mapping[str, Body] = {
    "os-attach": _attach,
    "os-detach": _with("attachment_id", "attachments"),
    **dict.fromkeys(("os-reserve", "os-unreserve"), _plain()),
    **dict.fromkeys(("os-begin_detaching", "os-roll_detaching"), _plain()),
    "os-initialize_connection": _CONNECT,
    "os-terminate_connection": _CONNECT,
    "os-extend": _extend,
    "os-retype": _retype,
    "os-migrate_volume": _migrate,
    "os-set_bootable": _flag("bootable"),
    "os-update_readonly_flag": _flag("readonly"),
    "os-set_image_metadata": _plain({"metadata": {KEY: "v"}}),
    "os-unset_image_metadata": _plain({"key": KEY}),
    "os-show_image_metadata": _plain(),
    "os-reset_status": _plain({"status": "error"}),
    "os-force_delete": _plain({}),
    "lunshare:handover": _with("to", "attachments"),
    "lunshare:attach": _attach_hosts,
    "lunshare:detach": lambda population, chances: {
        "attachments": [population.of("attachments")]
    },
    "os-force_detach": _with("attachment_id", "attachments"),
    "os-unmanage": _plain(),
    "revert": _with("snapshot_id", "snapshots"),
}
_SNAPSHOT: Mapping[str, Body] = {
    "os-reset_status": _plain({"status": "available"}),
    "os-force_delete": _plain(),
    "os-update_snapshot_status": _plain({"status": "creating", "progress": "80%"}),
    "os-unmanage": _plain(),
}
_TABLES = {"volumes": _VOLUME, "snapshots": _SNAPSHOT}


def body(resource: str, population: Population, chances: Random) -> Any:
    """The body of any action of a resource, or None where it has no table."""
    if resource not in _TABLES:
        return None
    name, made = chances.choice(list(_TABLES[resource].items()))
    return {name: made(population, chances)}
