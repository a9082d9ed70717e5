# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Many storage nodes in one process, as scheduler, bus and database see them.

``python -m tests.bench.fake_nodes --config-file cinder.conf``, with Cinder's Python.
Each line of standard input is a call ``[verb, {argument: value}]`` of ``FakeNodes``;
its result is a line of standard output. It removes the nodes when its input ends.

What is Cinder's own here: the row of each service, its heartbeat, both messages of a
report (``cinder.scheduler.rpcapi``), and the objects of volumes. What is not: a create
only writes the volume's row, where cinder-volume runs a flow of tasks and a driver.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import oslo_messaging
import sqlalchemy as sa
from cinder import context, objects, rpc
from cinder.common import config  # noqa: F401 - registers Cinder's options
from cinder.db import api as db
from cinder.scheduler.rpcapi import SchedulerAPI
from cinder.volume.rpcapi import VolumeAPI
from oslo_config import cfg
from oslo_utils import timeutils

from tests.bench.fake_node_bus import NodeBus

CONF = cfg.CONF
POOL = "many"
_TAP = "tap"
_NONE = {"heartbeats": 0, "reports": 0, "late": 0.0}


class FakeNodes:
    """The nodes, and what they do by themselves."""

    def __init__(self, port: int) -> None:
        self._admin = context.get_admin_context()
        self._scheduler, self._bus = SchedulerAPI(), NodeBus(port, self._heard)
        self._nodes: dict[str, objects.Service] = {}
        self._caps: dict[str, dict[str, Any]] = {}
        self._creates: dict[str, dict[str, Any]] = {}
        self._workers, self._mutex = ThreadPoolExecutor(4), threading.Lock()
        self._engine = sa.create_engine(
            CONF.database.connection, poolclass=sa.pool.NullPool
        )
        self._idle: list[sa.Connection] = []
        self._pacing, self._pacers = threading.Event(), list[threading.Thread]()
        self._counts = dict(_NONE)
        self._bus.tap(_TAP, SchedulerAPI.TOPIC)

    def grow(self, count: int, report: dict[str, Any]) -> None:
        """Start nodes until there are so many; each reports these stats of a pool."""
        for number in range(len(self._nodes), count):
            name = f"node-{number:04d}@{POOL}"
            self._caps[name] = _report(copy.deepcopy(report))
            self._nodes[name] = self._service(name)
            self._idle.append(self._engine.connect())
            self._bus.join(name)
            self._publish(name)

    def begin(self, heartbeat: float, report: float) -> None:
        """Let every node write its heartbeat and report, each so many seconds."""
        self._pacing.clear()
        self._pace(self._beat, heartbeat)
        self._pace(self._publish, report)

    def counted(self) -> dict[str, float]:
        """How often they did since the last call, and by how much one was late."""
        counts, self._counts = self._counts, dict(_NONE)
        return counts

    def end(self) -> None:
        """Stop that."""
        self._pacing.set()
        for each in self._pacers:
            each.join()
        self._pacers.clear()

    def creates(self) -> dict[str, dict[str, Any]]:
        """Moments of each create since the last call, by volume, when it is done."""
        with self._mutex:
            done = {k: v for k, v in self._creates.items() if "done" in v}
            for each in done:
                del self._creates[each]
        return done

    def remove(self) -> None:
        """Remove the nodes."""
        self.end()
        self._bus.leave()
        for service in self._nodes.values():
            service.destroy()
        for each in self._idle:
            each.close()

    def _service(self, name: str) -> Any:
        made = objects.Service(
            context=self._admin,
            host=name,
            binary=VolumeAPI.BINARY,
            topic=VolumeAPI.TOPIC,
            report_count=0,
            availability_zone=CONF.storage_availability_zone,
            rpc_current_version=VolumeAPI.RPC_API_VERSION,
            object_current_version=objects.base.OBJ_VERSIONS.get_current(),
        )
        made.create()
        self._beat_of(made.id)
        return made

    def _beat(self, name: str) -> None:
        self._beat_of(self._nodes[name].id)
        self._counts["heartbeats"] += 1

    def _beat_of(self, number: int) -> None:
        """As ``cinder.service.Service.report_state``."""
        row = objects.Service.get_by_id(self._admin, number)
        row.report_count += 1
        row.save(retry=False)

    def _publish(self, name: str) -> None:
        """As ``cinder.manager.SchedulerDependentManager``."""
        caps = self._caps[name]
        self._scheduler.update_service_capabilities(
            self._admin, "volume", name, caps, None
        )
        self._scheduler.notify_service_capabilities(self._admin, "volume", name, caps)
        self._counts["reports"] += 1

    def _pace(self, work: Callable[[str], None], period: float) -> None:
        def paced() -> None:
            due, names = time.monotonic(), list(self._nodes)
            while True:
                for name in names:
                    due += period / len(names)
                    if self._pacing.wait(max(0.0, due - time.monotonic())):
                        return
                    late = time.monotonic() - due
                    self._counts["late"] = max(self._counts["late"], late)
                    work(name)

        thread = threading.Thread(target=paced, daemon=True)
        thread.start()
        self._pacers.append(thread)

    def _heard(self, node: str, message: dict[str, Any]) -> None:
        if message["method"] == "publish_service_capabilities":
            self._work(self._publish, node)
        elif message["method"] == "create_volume":
            args = message["args"]
            volume_id = args["volume"]["versioned_object.data"]["id"]
            moment = "asked" if node == _TAP else "chosen"
            with self._mutex:
                found = self._creates.setdefault(volume_id, {})
                found.setdefault(moment, time.monotonic())
            if node != _TAP:
                self._work(self._create, node, args["volume"])

    def _work(self, verb: Callable[..., None], *given: Any) -> None:
        def worked() -> None:
            try:
                verb(*given)
            except Exception:
                traceback.print_exc()  # nobody asks for a result

        self._workers.submit(worked)

    def _create(self, node: str, primitive: dict[str, Any]) -> None:
        volume = objects.Volume.obj_from_primitive(primitive, self._admin)
        pool = self._caps[node]["pools"][0]
        with self._mutex:
            pool["provisioned_capacity_gb"] += volume.size
            pool["allocated_capacity_gb"] += volume.size
        volume.status, volume.launched_at = "available", timeutils.utcnow()
        volume.service_uuid = self._nodes[node].uuid
        volume.save()
        db.worker_destroy(self._admin, resource_type="Volume", resource_id=volume.id)
        with self._mutex:
            found = self._creates[volume.id]
            found |= {"node": node, "done": time.monotonic()}


def _report(pool: dict[str, Any]) -> dict[str, Any]:
    """The report of a backend with this pool, as lunshare's driver makes it."""
    pool |= {"pool_name": POOL, "volume_backend_name": POOL, "total_volumes": 0}
    of_backend = (
        *("volume_backend_name", "vendor_name", "driver_version", "storage_protocol"),
        *("shared_targets", "sparse_copy_volume", "replication_enabled"),
    )
    return {**{key: pool[key] for key in of_backend}, "pools": [pool]}


def main(argv: list[str]) -> int:
    """Answer calls until the input ends."""
    objects.register_all()
    CONF(argv, project="cinder")
    rpc.init(CONF)
    host = oslo_messaging.TransportURL.parse(CONF).hosts[0]
    nodes = FakeNodes(host.port)
    try:
        for line in sys.stdin:
            verb, arguments = json.loads(line)
            answer = getattr(nodes, verb)(**arguments)
            print(json.dumps(answer), flush=True)
    finally:
        nodes.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
