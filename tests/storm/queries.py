# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Requests that change no volume: lists, types, the node."""

from __future__ import annotations

import time

from tests.storm.client import Client

_LISTS = (
    "volumes",
    "volumes/detail?limit=3&with_count=true",
    "volumes/detail?status=available&sort=size:desc",
    "snapshots/detail",
    "attachments/detail",
    "types",
    "messages",
    "os-services",
    "scheduler-stats/get_pools?detail=true",
    "lunshare/wipes",
)


def lists(client: Client) -> None:
    """One of the lists; or all volumes, each of which is checked."""
    if client.rng.random() < 0.5:
        client.get(client.rng.choice(_LISTS))
        return
    asked = time.monotonic()
    answer = client.get("volumes/detail")
    if answer.status == 200:
        for volume in answer.body["volumes"]:
            client.check(volume, asked)


def health(client: Client) -> None:
    client.api.ask(None, "GET", client.rng.choice(["/healthz", "/readyz"]))


def manageable(client: Client) -> None:
    backend = client.rng.choice(["thin", "thick", "plain"])
    host = client.world.host_of(backend)
    client.get(f"manageable_volumes/detail?host={host.replace('#', '%23')}")


def types(client: Client) -> None:
    """A type comes to be, changes and goes, or stays."""
    op = client.begin("type", name=client.uuid())
    asked = {"volume_type": {"name": op.given["name"], "extra_specs": {"a": "1"}}}
    answer = client.post(op, "types", asked)
    if not answer.good:
        return
    ident = answer.body["volume_type"]["id"]
    op.given["id"], op.done = ident, op.answered
    client.journal.about(op, ident)
    put = client.begin("set-spec", ident, value=client.uuid())
    spec = {"b": put.given["value"]}
    client.api.ask(put, "PUT", f"/v3/types/{ident}/extra_specs/b", spec)
    if client.rng.random() < 0.7:
        gone = client.begin("delete-type", ident)
        client.delete(gone, f"types/{ident}")
