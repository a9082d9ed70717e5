# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder over a real NFS server: files as LUNs, and files that hosts mount."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.values import GIB
from tests.bench.http import Client
from tests.cinder_guest.node import DRIVER, GLANCE, OURS, Node, stop_lunshared
from tests.demo.hosts import SHARED, Host, Pulse
from tests.fleet import api
from tests.fleet_nodes.glance import Glance
from tests.stands.waiting import until
from tests.system.lio_hosts import Refused
from tests.system.nfs_server import NfsServer

#: Files that LIO exports, sparse and preallocated; files that hosts mount; and logical
#: volumes.
FILES, RESERVED, MOUNTED, THIN = "files", "reserved", "mounted", "thin"
_BLOCK, _DATA_PROTECT = bytes(512), 7


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NfsServer]:
    made = NfsServer(tmp_path_factory.mktemp("nfs"), 3 * GIB)
    for name in (FILES, RESERVED, MOUNTED):
        made.path.joinpath(name).mkdir()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def glance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Glance]:
    directory = tmp_path_factory.mktemp("images") / "glance"
    made = Glance(directory, GLANCE, "127.0.0.1")
    made.start(f"sqlite:///{directory}/glance.sqlite", None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def node(
    server: NfsServer, glance: Glance, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    stop_lunshared()

    def share(name: str, target: str) -> str:
        return (
            f"{DRIVER}lunshare_storage = nfs\nlunshare_target = {target}\n"
            f"nas_host = {server.share.host}\n"
            f"nas_share_path = {server.share.path}/{name}\n"
            f"nas_mount_options = {server.share.options}\n"
        )

    backends = {
        FILES: share(FILES, "lio"),
        RESERVED: share(RESERVED, "lio") + "nfs_sparsed_volumes = false\n",
        MOUNTED: share(MOUNTED, "nfs"),
        THIN: OURS,
    }
    images = f"glance_api_servers = {glance.url}\n"
    with Node(tmp_path_factory.mktemp("cinder"), backends, images) as made:
        yield made


def host(client: Client, volume_id: str, name: str, mode: str) -> Host:
    """A host with an attachment, which has not logged in yet."""
    made = Host(name)
    made.initiator = api.iqn(name)
    made.attachment, made.info = api.attach(client, volume_id, name, mode)
    return made


def leave(client: Client, *hosts: Host) -> None:
    """Log out, and delete the attachments."""
    for each in hosts:
        each.leave()
        api.detach(client, each.attachment)


def files(server: NfsServer, name: str) -> set[str]:
    """The files of a share, as the server sees them."""
    return {each.name for each in Path(server.path, name).iterdir() if each.is_file()}


def restart(node: Node) -> None:
    """Kill cinder-volume, and start it again."""
    line = "Driver post RPC initialization completed"
    node.stop_volume(signal.SIGKILL)
    before = node.log.count(line)
    node.start_volume()
    count = len(node.backends)
    until(lambda: node.log.count(line) >= before + count, "it has started", 300)


def test_hosts_of_a_file_have_the_mode_of_their_attachment(
    node: Node, server: NfsServer, client: Client
) -> None:
    volume, data = api.create(client, FILES), os.urandom(SHARED)
    writer, reader = (
        host(client, volume, name, mode)
        for name, mode in (("writer", "rw"), ("reader", "ro"))
    )
    writer.write(data)
    assert reader.read() == data
    with pytest.raises(Refused) as refused:
        reader.live().write(0, _BLOCK)
    assert refused.value.key == _DATA_PROTECT
    pulses = [Pulse(each, each is writer) for each in (writer, reader)]
    restart(node)
    api.act(client, volume, "os-extend", {"new_size": 2})
    api.reaches(client, volume, "in-use")
    for pulse in pulses:
        until(pulse.past(5), "its I/O goes on", 300)
        pulse.stop()
        assert pulse.error is None
    assert reader.live().write_protected
    assert Path(server.path, FILES, f"volume-{volume}").stat().st_size == 2 * GIB
    leave(client, writer, reader)
    api.reaches(client, volume, "available")
    api.delete(client, volume)


def test_snapshots_clones_and_reverts_of_files(
    server: NfsServer, client: Client
) -> None:
    volume, data = api.create(client, FILES), os.urandom(SHARED)
    one = host(client, volume, "one", "rw")
    one.write(data)
    snapshot = api.snapshot(client, volume)
    one.write(bytes(SHARED))
    leave(client, one)
    api.reaches(client, volume, "available")
    copy = api.create(client, FILES, size=2, snapshot_id=snapshot)
    clone = api.create(client, FILES, source_volid=copy, size=2)
    api.act(client, volume, "revert", {"snapshot_id": snapshot})
    api.reaches(client, volume, "available")
    for each in (volume, copy, clone):
        reader = host(client, each, "reader", "ro")
        assert reader.read() == data
        leave(client, reader)
        api.reaches(client, each, "available")
    client("DELETE", f"/snapshots/{snapshot}")
    api.gone(client, f"/snapshots/{snapshot}")
    for each in (volume, copy, clone):
        api.delete(client, each)
    assert files(server, FILES) == set()


@pytest.mark.parametrize(
    ("backend", "format_"), [(FILES, "raw"), (FILES, "qcow2"), (RESERVED, "qcow2")]
)
def test_image_becomes_a_file_of_the_volumes_size_and_an_image_again(
    server: NfsServer, glance: Glance, client: Client, backend: str, format_: str
) -> None:
    image = glance.image("")
    expected = glance.data(image, "")
    first = api.create(client, backend, imageRef=image)
    body = {"image_name": "again", "disk_format": format_, "container_format": "bare"}
    answer = api.act(client, first, "os-volume_upload_image", body)
    again = str(answer["os-volume_upload_image"]["image_id"])
    until(lambda: glance.status(again, "") == "active", "it is uploaded", 300)
    api.reaches(client, first, "available")
    second = api.create(client, backend, imageRef=again)
    for each in (first, second):
        path = Path(server.path, backend, f"volume-{each}")
        assert path.stat().st_size == GIB
        full = path.stat().st_blocks * 512 >= GIB
        assert full is (backend == RESERVED)
        assert path.stat().st_mode & 0o777 == 0o600
        reader = host(client, each, "reader", "ro")
        assert reader.read() == expected[:SHARED]
        assert reader.live().read(GIB // 512 - 1) == _BLOCK
        leave(client, reader)
        api.reaches(client, each, "available")
        api.delete(client, each)
    for name in (image, again):
        glance.delete(name, "")


@pytest.mark.parametrize(("source", "target"), [(THIN, FILES), (FILES, THIN)])
def test_volume_is_copied_between_a_share_and_a_volume_group(
    node: Node, client: Client, source: str, target: str
) -> None:
    ours = api.volume_type(client, "ours", {"vendor_name": "lunshare"})
    named = api.volume_type(client, source, {"volume_backend_name": source})
    volume, data = api.create(client, source, volume_type=named), os.urandom(SHARED)
    one = host(client, volume, "one", "rw")
    one.write(data)
    leave(client, one)
    api.reaches(client, volume, "available")
    retype = {"new_type": ours, "migration_policy": "never"}
    api.act(client, volume, "os-retype", retype)
    until(
        lambda: api.show(client, volume)["volume_type"] == ours, "it has the type", 300
    )
    api.reaches(client, volume, "available")
    body = {"host": f"node@{target}#{target}", "force_host_copy": False}
    api.act(client, volume, "os-migrate_volume", body)
    until(
        lambda: api.show(client, volume)["migration_status"] == "success",
        "it is migrated",
        300,
    )
    assert f"[{source}] volume copied: volume={volume} to={target}" in node.log
    reader = host(client, volume, "reader", "ro")
    assert reader.read() == data
    leave(client, reader)
    api.reaches(client, volume, "available")
    api.delete(client, volume)


def test_host_mounts_the_share_and_may_not_be_read_only(
    node: Node, server: NfsServer, client: Client
) -> None:
    named = api.volume_type(client, MOUNTED, {"volume_backend_name": MOUNTED})
    volume = api.create(client, MOUNTED, volume_type=named)
    restart(node)
    # A host that has no initiator name.
    attachment = api.reserve(client, volume, "rw")
    body = {"attachment": {"connector": {"host": "one", "ip": "127.0.0.1"}}}
    client("PUT", f"/attachments/{attachment}", body)
    info = api.info_of(client, attachment)
    assert info["driver_volume_type"] == "nfs"
    assert info["export"] == f"{server.share.host}:{server.share.path}/{MOUNTED}"
    assert files(server, MOUNTED) == {info["name"]}
    api.detach(client, attachment)
    api.reaches(client, volume, "available")
    refused = api.reserve(client, volume, "ro")
    with pytest.raises(RuntimeError):
        api.connect(client, refused, "one")
    assert "mode rw: this target does not enforce read-only" in node.log
    api.detach(client, refused)
    api.reaches(client, volume, "available")
    api.delete(client, volume)
    assert files(server, MOUNTED) == set()
