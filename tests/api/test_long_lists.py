# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of rows with as much as they may have: each client gets all, page by page."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openstack
import pytest
import requests

from lunshare.agent.db import attachments, snapshots, volumes
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.page_rows import PAGE_BYTES
from lunshare.agent.model.records import Attachment, Snapshot, Volume
from lunshare.agent.model.states import AttachStatus, SnapshotStatus, VolumeStatus
from tests.api import clients
from tests.stands.daemon import Lunshared, configuration, ready

pytestmark = pytest.mark.daemon

COUNT = 300
#: As much as metadata_limits and connectors allow for one row.
METADATA = {f"{number:0255}": "m" * 255 for number in range(128)}
IMAGE = {f"i{number}": "i" * 65_000 for number in range(4)}
CONNECTOR = {"initiator": "iqn.1994-05.com.example:a", "host": "a", "x": "c" * 8000}


def volume(ident: str) -> Volume:
    return Volume(
        ident,
        1,
        VolumeStatus.AVAILABLE,
        "fake",
        "default",
        "admin",
        name=ident,
        metadata=METADATA,
        image_metadata=IMAGE,
        created_at=now(),
        updated_at=now(),
    )


def snapshot(ident: str) -> Snapshot:
    return Snapshot(
        str(uuid.uuid4()),
        ident,
        1,
        SnapshotStatus.AVAILABLE,
        "default",
        "admin",
        metadata=METADATA,
        created_at=now(),
    )


def attachment(ident: str) -> Attachment:
    return Attachment(
        str(uuid.uuid4()),
        ident,
        AttachStatus.RESERVED,
        connector=CONNECTOR,
        connection_info=CONNECTOR,
        created_at=now(),
    )


#: As in systemd/lunshared.service, with which the daemon has its MemoryMax.
ALLOCATOR = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "131072"}
MEMORY_MAX_KIB = 1024 * 1024
CLIENTS = 32
_NEXT = rb'_links":\[\{"rel":"next","href":"([^"]+)"'


@pytest.fixture(scope="module", name="server")
def daemon_with_long_lists(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lunshared]:
    path: Path = tmp_path_factory.mktemp("daemon")
    options = "quota_volumes = -1\nnoauth_on_loopback = true\n"
    with ready(Lunshared(path, configuration(options)), **ALLOCATOR) as server:
        database = Database(f"sqlite:///{server.state}/lunshare.sqlite", connections=1)
        with database.writing() as connection:
            for ident in [str(uuid.uuid4()) for _ in range(COUNT)]:
                volumes.insert(connection, volume(ident))
                snapshots.insert(connection, snapshot(ident))
                for _ in range(2):
                    attachments.insert(connection, attachment(ident))
        database.close()
        yield server


@pytest.fixture(name="endpoint")
def endpoint_of_server(server: Lunshared) -> str:
    return f"{server.url}/v3"


def test_many_clients_at_once_get_every_row_within_the_memory_of_the_unit(
    server: Lunshared,
) -> None:
    def bytes_of_pages(_: int) -> int:
        pages = every_page(f"{server.url}/v3/volumes/detail")
        return sum(len(page.content) for page in pages)

    with ThreadPoolExecutor(CLIENTS) as pool:
        (total,) = set(pool.map(bytes_of_pages, range(CLIENTS)))
    assert total > COUNT * 300_000
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (peak,) = [line.split()[1] for line in status.splitlines() if "VmHWM" in line]
    print(f"VmHWM with {CLIENTS} clients: {int(peak) // 1024} MiB")
    assert int(peak) < MEMORY_MAX_KIB


@pytest.mark.parametrize(
    ("kind", "count"), [("volumes", 300), ("volume_snapshots", 300)]
)
def test_cinderclient_gets_every_row(endpoint: str, kind: str, count: int) -> None:
    rows = getattr(clients.library(endpoint), kind).list()
    assert len({row.id for row in rows}) == len(rows) == count
    assert {len(row.metadata) for row in rows} == {len(METADATA)}


def test_cinderclient_gets_every_attachment(endpoint: str) -> None:
    rows = clients.library(endpoint).attachments.list(search_opts={})
    assert len({row.id for row in rows}) == len(rows) == 2 * COUNT


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("limit", [None, 50])
def test_openstacksdk_gets_every_row(endpoint: str, limit: int | None) -> None:
    cloud = openstack.connect(
        auth_type="none", endpoint=endpoint, block_storage_api_version="3"
    )
    query: dict[str, Any] = {} if limit is None else {"limit": limit}
    for rows in (cloud.block_storage.volumes, cloud.block_storage.snapshots):
        ids = [row.id for row in rows(details=True, **query)]
        assert len(set(ids)) == len(ids) == COUNT


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("volumes/detail", COUNT),
        ("snapshots/detail", COUNT),
        ("attachments/detail", 2 * COUNT),
        ("volumes/detail?limit=100&name~=-", COUNT),
        ("volumes/detail?offset=10", COUNT - 10),
    ],
)
def test_no_answer_has_many_more_bytes_than_a_page(
    endpoint: str, path: str, count: int
) -> None:
    largest_row = 400_000
    pages = list(every_page(f"{endpoint}/{path}"))
    assert max(map(len, (page.content for page in pages))) < PAGE_BYTES + largest_row
    name = path.partition("/")[0]
    assert sum(len(page.json()[name]) for page in pages) == count


def every_page(url: str) -> Iterator[requests.Response]:
    """The pages of a list; the link is at the end of one, which is not parsed."""
    headers = {"OpenStack-API-Version": "volume 3.71"}
    while url:
        page = requests.get(url, headers=headers, timeout=60)
        yield page
        links = re.search(
            rb'_links":\[\{"rel":"next","href":"([^"]+)"', page.content[-999:]
        )
        url = links[1].decode() if links else ""
