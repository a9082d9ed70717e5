# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A complete node in this process, on the fake backend, for tests.

It is assembled as the daemon assembles it. Its storage outlives it, so that a
test can kill a node and start another one on what is left.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.http import listener
from lunshare.agent.listen_addresses import Address
from lunshare.agent.main import configure
from lunshare.agent.model.records import (
    Attachment,
    HostConnector,
    Mode,
    NewAttachment,
    NewVolume,
    Page,
    RequestContext,
    Volume,
)
from lunshare.agent.service.attachments import connectors
from lunshare.agent.service.services import Services
from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.fake.fake_storage import Failures
from lunshare.drivers.targets.fake import FakeTarget
from tests import counted_rows
from tests.stands.servers import LOOPBACK

CTX = RequestContext("user", "project", True, "req-test", ("admin",))

CONFIG = """
[DEFAULT]
enabled_backends = {backends}
reconcile_interval = 3600
quota_volumes = -1
quota_snapshots = -1
quota_gigabytes = -1
allowed_hosts = falconframework.org, node, 127.0.0.1, ::1
{extra}
"""

SECTION = """
[{name}]
volume_driver = fake
target_driver = fake
{section}
"""


class Node:
    """A node over a state path, from its start to its end."""

    def __init__(
        self, path: Path, extra: str = "", backends: str = "fake", section: str = ""
    ) -> None:
        self.path = path
        text = CONFIG.format(backends=backends, extra=extra)
        text += "".join(
            SECTION.format(name=name, section=section) for name in backends.split(",")
        )
        config = path / "lunshare.conf"
        config.write_text(text)
        argv = ["--config-file", str(config), "--state-path", str(path)]
        self.conf = configure(argv)
        self.assembly: Assembly = assemble(self.conf)
        self.services: Services = self.assembly

    def start(self) -> Node:
        """Reconcile, as the daemon does before it listens."""
        self.outcome = self.assembly.reconcile.run()
        return self

    def driver(self, backend: str = "fake"):
        """The volume driver, with its failure points."""
        return self.assembly.backends[backend].drivers.volumes

    def target(self, backend: str = "fake") -> FakeTarget:
        """The target driver, with its failure points and its hosts' side."""
        target = self.assembly.backends[backend].drivers.target
        assert isinstance(target, FakeTarget)
        return target

    def shared_volume(self, size: int = 1) -> Volume:
        """A new volume that any number of hosts may have."""
        if not self.services.types.list(CTX):
            specs = {"multiattach": "<is> True"}
            self.services.types.create(CTX, "multiattach", extra_specs=specs)
        new = NewVolume(size, volume_type="multiattach")
        return self.services.volumes.create(CTX, new)

    def plain_volume(self, size: int = 1) -> Volume:
        """A new volume that takes one host."""
        return self.services.volumes.create(CTX, NewVolume(size))

    def live(self, volume_id: str) -> dict[str, str | None]:
        """Initiator to mode, as the target has it."""
        found = [e for e in self.target().observe() if e.volume_id == volume_id]
        return {c.initiator: c.mode for e in found for c in e.connectors}

    def close(self) -> None:
        """Stop it cleanly."""
        self.assembly.close()


def node_fixture(
    scope: Literal["function", "module"] = "function",
    *,
    forget_storage: bool = False,
    **options: str,
) -> Any:
    """A pytest fixture ``node``: started with these options of Node, and closed.

    ``forget_storage``: what earlier nodes of this process have left is gone.
    """

    @pytest.fixture(scope=scope, name="node")
    def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
        if forget_storage:
            fake_storage.reset()
        node = Node(tmp_path_factory.mktemp("node"), **options).start()
        yield node
        node.close()

    return node


def served(node: Node, bind: tuple[str, int] | str) -> Iterator[Any]:
    """Yield the address at which the node listens."""
    server = listener.serve(node.assembly.app, [Address(bind)], threads=4)
    server.start()
    yield server.bind_addr
    server.stop()


@pytest.fixture
def endpoint(node: Node) -> Iterator[str]:
    """The URL of the API of ``node``, which serves it."""
    for host, port in served(node, (LOOPBACK, 0)):
        yield f"http://{host}:{port}/v3"


def is_counted(node: Node, project: str) -> bool:
    """Whether the quota counters of a project equal a count of its rows.

    So do the totals by status, of all projects.
    """
    with node.assembly.database.reading() as connection:
        if not counted_rows.totals_are_right(connection):
            return False
        kept = counted_rows.every_usage(connection).get(project, [])
        return kept == [tuple(row) for row in counted_rows.usage(connection, project)]


def connector(name: str, **more: object) -> dict[str, object]:
    """What a host of that name sends."""
    address = f"127.0.{zlib.crc32(name.encode()) % 256}.1"
    return {"initiator": initiator(name), "host": name, "ip": address, **more}


def host_connector(name: str, **more: object) -> HostConnector:
    """What the API makes of it."""
    return connectors.parse(connector(name, **more))


def initiator(name: str) -> str:
    """The initiator name of that host."""
    return f"iqn.1994-05.com.example:{name}"


def attach(node: Node, volume: Volume, host: str, mode: str | None = None):
    asked = Mode(mode) if mode else None
    new = NewAttachment(volume.id, mode=asked, connector=host_connector(host))
    return node.services.attachments.create(CTX, new)


def rows(node: Node) -> list[Attachment]:
    return node.services.attachments.list(CTX, Page(None, 1000))


class failing_once:
    """The point raises TargetFailed the first time it is passed."""

    def __init__(self, failures: Failures, point: str) -> None:
        self.failures, self.point, self.fired = failures, point, False

    def __enter__(self) -> None:
        self.failures.watch(self.passed)

    def __exit__(self, *_: object) -> None:
        self.failures.watch(lambda _: None)
        assert self.fired

    def passed(self, point: str) -> None:
        if point == self.point and not self.fired:
            self.fired = True
            raise TargetFailed("v", "because of the test")
