# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests ask of cinder-api, each waiting for its end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from tests.bench.http import Client
from tests.stands.waiting import until

SHARED = {"multiattach": "<is> True"}


def connector(host: str) -> dict[str, Any]:
    """What os-brick sends on a host with iSCSI."""
    return {"initiator": iqn(host), "host": host, "ip": "127.0.0.1"}


def iqn(host: str) -> str:
    """The iSCSI name of a host."""
    return f"iqn.1994-05.com.example:{host}"


def volume_type(client: Client, name: str, specs: Mapping[str, str]) -> str:
    """Create a volume type if it does not exist; return its name."""
    if name not in [each["name"] for each in client("GET", "/types")["volume_types"]]:
        body = {"volume_type": {"name": name, "extra_specs": dict(specs)}}
        client("POST", "/types", body)
    return name


def shared_type(client: Client, backend: str) -> str:
    """A type for volumes of several hosts on this backend."""
    specs = {**SHARED, "volume_backend_name": backend}
    return volume_type(client, f"shared-{backend}", specs)


def create(client: Client, backend: str, size: int = 1, **more: Any) -> str:
    """Create a volume that may be shared; return its id when it is available."""
    body = {"size": size, "volume_type": shared_type(client, backend), **more}
    volume_id = client("POST", "/volumes", {"volume": body})["volume"]["id"]
    reaches(client, volume_id, "available")
    return str(volume_id)


def show(client: Client, volume_id: str) -> Any:
    """The volume."""
    return client("GET", f"/volumes/{volume_id}")["volume"]


def reaches(
    client: Client, volume_id: str, *statuses: str, seconds: float = 180.0
) -> None:
    """Wait until the volume has one of these statuses."""

    def done() -> bool:
        status = show(client, volume_id)["status"]
        if status.startswith("error") and status not in statuses:
            raise AssertionError(f"volume {volume_id} is {status}")
        return status in statuses

    until(done, f"volume {volume_id} is {' or '.join(statuses)}", seconds)


def act(client: Client, volume_id: str, name: str, body: Any) -> Any:
    """An action of the volume."""
    return client("POST", f"/volumes/{volume_id}/action", {name: body})


def delete(client: Client, volume_id: str) -> None:
    """Delete a volume, and wait until it is gone."""
    client("DELETE", f"/volumes/{volume_id}")
    gone(client, f"/volumes/{volume_id}")


def gone(client: Client, path: str) -> None:
    """Wait until this path is unknown."""

    def unknown() -> bool:
        with contextlib.suppress(RuntimeError):
            client("GET", path)
            return False
        return True

    until(unknown, f"{path} is gone", 180)


def snapshot(client: Client, volume_id: str) -> str:
    """Create a snapshot, also while hosts use the volume."""
    body = {"snapshot": {"volume_id": volume_id, "force": True}}
    found = client("POST", "/snapshots", body)["snapshot"]["id"]

    def done() -> bool:
        status = client("GET", f"/snapshots/{found}")["snapshot"]["status"]
        assert status != "error", f"snapshot {found} is {status}"
        return bool(status == "available")

    until(done, f"snapshot {found} is available")
    return str(found)


def reserve(client: Client, volume_id: str, mode: str | None) -> str:
    """Create an attachment without a connector, as Nova does; return its id."""
    body = {"volume_uuid": volume_id} | ({"mode": mode} if mode else {})
    return str(client("POST", "/attachments", {"attachment": body})["attachment"]["id"])


def connect(client: Client, attachment_id: str, host: str) -> Any:
    """Give it a connector; return connection_info."""
    body = {"attachment": {"connector": connector(host)}}
    client("PUT", f"/attachments/{attachment_id}", body)
    client("POST", f"/attachments/{attachment_id}/action", {"os-complete": None})
    return info_of(client, attachment_id)


def attach(
    client: Client, volume_id: str, host: str, mode: str | None
) -> tuple[str, Any]:
    """Create, connect and complete; return the attachment's id and connection_info."""
    attachment_id = reserve(client, volume_id, mode)
    return attachment_id, connect(client, attachment_id, host)


def attach_at_once(
    client: Client, volume_id: str, host: str, mode: str
) -> tuple[str, Any]:
    """Create an attachment with a connector in one request, and complete it."""
    body = {"volume_uuid": volume_id, "mode": mode, "connector": connector(host)}
    made = client("POST", "/attachments", {"attachment": body})["attachment"]
    client("POST", f"/attachments/{made['id']}/action", {"os-complete": None})
    return made["id"], made["connection_info"]


def info_of(client: Client, attachment_id: str) -> Any:
    """The connection_info of an attachment."""
    found = client("GET", f"/attachments/{attachment_id}")["attachment"]
    return found["connection_info"]


def detach(client: Client, attachment_id: str) -> None:
    """Delete an attachment."""
    client("DELETE", f"/attachments/{attachment_id}")
