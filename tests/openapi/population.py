# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Resources that exist, so that random requests get past a 404.

A resource that a request deleted is created again when the next one needs it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import requests

from tests.stands.waiting import until

#: What every volume and type of the population has. The scheduler ignores its scope.
KEY = "fuzz:k"
_INITIATOR = "iqn.1994-05.com.example:fuzz"
#: Seconds for what takes few, but not on a busy machine.
_PATIENCE = 240
CONNECTOR = {"initiator": _INITIATOR, "host": "fuzz", "ip": "127.0.0.1"}


class Population:
    """The ids of resources, by the name that their path begins with."""

    def __init__(self, endpoint: str, project: str, headers: Mapping[str, str]) -> None:
        self._endpoint, self._project = endpoint, project
        self._session = requests.Session()
        self._session.headers.update(headers)
        self._ids: dict[str, str] = {}
        services = self._ask("GET", "os-services")["services"]
        hosts = [each["host"] for each in services if "@" in each["host"]]
        # Requests disable and freeze one backend. The other one gets the population.
        self.host, self.other_host = hosts[0], hosts[-1]
        self._makers: Mapping[str, Callable[[], str]] = {
            "volumes": self._volume,
            "volumes to share": self._shared_volume,
            "snapshots": self._snapshot,
            "attachments": self._attachment,
            "types": self._type,
            "types in use": self._type,
            "types that share": lambda: self._type(multiattach="<is> True"),
            "os-volume-transfer": self._transfer,
            "volume-transfers": self._transfer,
            "qos-specs": self._qos,
            "messages": self._message,
            "capabilities": lambda: f"{self.host}#{self.host.partition('@')[2]}",
            "os-hosts": lambda: self.host,
            "extensions": lambda: "os-services",
            "default-types": lambda: "default",
            "os-quota-sets": lambda: project,
            "os-quota-class-sets": lambda: "default",
        }

    def of(self, resource: str) -> str | None:
        """The id of one that exists, or None where there is no such resource."""
        if resource not in self._makers:
            return None
        if resource not in self._ids or not self._is_usable(resource):
            self._ids[resource] = self._makers[resource]()
        return self._ids[resource]

    def await_deletion(self, url: str) -> None:
        """Wait until a deletion that was accepted has ended."""

        def has_ended() -> bool:
            answer = self._session.get(url, timeout=_PATIENCE)
            return '"status":"deleting"' not in answer.text

        until(has_ended, f"{url} is deleted", _PATIENCE)

    def _is_usable(self, resource: str) -> bool:
        """Whether it exists, and whether a volume is not in the way of the next."""
        path = resource.partition(" ")[0]
        answer = self._send("GET", f"{path}/{self._ids[resource]}")
        if resource == "volumes" and answer.ok:
            return bool(answer.json()["volume"]["status"] == "available")
        return answer.status_code != 404

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._send(method, path, body)
        assert answer.ok, f"{method} {path} {body}: {answer.text}"
        return answer.json()

    def _send(self, method: str, path: str, body: Any = None) -> requests.Response:
        url = f"{self._endpoint}/{path}"
        return self._session.request(method, url, json=body, timeout=_PATIENCE)

    def _new(self, path: str, name: str, fields: Any) -> str:
        """Create it, also where what requests have changed is in the way."""
        answer = self._send("POST", path, {name: fields})
        if not answer.ok:
            self._restore()
            answer = self._send("POST", path, {name: fields})
        assert answer.ok, f"POST {path} {fields}: {answer.text}"
        return str(answer.json()[name]["id"])

    def _ready(self, path: str, name: str, fields: Any) -> str:
        """Create it, and wait until it is available: a busy machine takes a while."""
        made = self._new(path, name, fields)
        if self._status(path, name, made) == "error":
            self._restore()
            made = self._new(path, name, fields)
        assert self._status(path, name, made) == "available", f"{path} {fields}"
        return made

    def _status(self, path: str, name: str, ident: str) -> str:
        """What it ends in when it is created."""

        def status() -> str:
            return str(self._ask("GET", f"{path}/{ident}")[name]["status"])

        until(lambda: status() != "creating", f"{path} are created", _PATIENCE)
        return status()

    def _restore(self) -> None:
        """Lift the quotas, and let the scheduler use the backend again."""
        path = f"os-quota-sets/{self._project}"
        found = self._ask("GET", path)["quota_set"]
        limits = {name: -1 for name in found if name != "id"}
        self._ask("PUT", path, {"quota_set": limits})
        backend = {"host": self.host, "binary": "cinder-volume"}
        self._ask("PUT", "os-services/enable", backend)
        self._send("PUT", "os-services/thaw", {"host": self.host})  # 400 if not frozen

    def _volume(self) -> str:
        """One with a type, since requests change the default type."""
        fields = {
            "size": 1,
            "metadata": {KEY: "v"},
            "volume_type": self.of("types in use"),
        }
        return self._ready("volumes", "volume", fields)

    def _shared_volume(self) -> str:
        """One that many hosts may attach."""
        fields = {"size": 1, "volume_type": self.of("types that share")}
        return self._ready("volumes", "volume", fields)

    def _snapshot(self) -> str:
        fields = {"volume_id": self._volume(), "metadata": {KEY: "v"}}
        return self._ready("snapshots", "snapshot", fields)

    def _attachment(self) -> str:
        fields = {"volume_uuid": self._shared_volume()}
        return self._new("attachments", "attachment", fields)

    def _type(self, **specs: str) -> str:
        name = str(uuid.uuid4())
        fields = {
            "name": name,
            "extra_specs": {KEY: "v", **specs},
            "os-volume-type-access:is_public": False,
        }
        return self._new("types", "volume_type", fields)

    def _transfer(self) -> str:
        fields = {"volume_id": self._volume()}
        return self._new("volume-transfers", "transfer", fields)

    def _qos(self) -> str:
        fields = {"name": str(uuid.uuid4()), KEY: "v"}
        return self._new("qos-specs", "qos_specs", fields)

    def _message(self) -> str:
        """That of a volume that no pool can hold."""
        unmet = self._type(volume_backend_name="nowhere")
        volume = self._new("volumes", "volume", {"size": 1, "volume_type": unmet})
        found = self._ask("GET", f"messages?resource_uuid={volume}")["messages"]
        self._send("DELETE", f"volumes/{volume}")
        return str(found[0]["id"])
