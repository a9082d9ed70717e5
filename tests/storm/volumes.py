# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What clients do to volumes and snapshots.

Every function is done by one client to one volume; which one comes from chance or
from a race.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.storm.api import Answer
from tests.storm.client import Client
from tests.storm.journal import Op
from tests.storm.world import BACKENDS, TYPES

Work = Callable[[Client, str], None]

MOST = 12
_SIZE = 3
_FORCE = "?force=true&cascade=true"


def create(client: Client) -> None:
    """A volume of a type, or of none."""
    if len(client.world.volumes()) >= MOST:
        return
    kind = client.rng.choice([None, *TYPES])
    size = client.rng.randint(1, _SIZE)
    make(client, "create", {"size": size, "volume_type": kind})


def make(client: Client, what: str, asked: dict[str, object], *of: str) -> None:
    """Create a volume, empty or from a source. Its name finds it without an id."""
    name = client.uuid()
    op = client.begin(what, *of, name=name, **asked)
    body = {"volume": {"name": name, "description": "", **asked}}
    _note_created(client, op, client.post(op, "volumes", body))


def _note_created(client: Client, op: Op, answer: Answer) -> None:
    if answer.good:
        ident = answer.body["volume"]["id"]
        client.journal.about(op, ident)
        op.given["id"] = ident
        client.watch(op, ident)
        client.world.add(ident)
        op.certain = op.result == "available"


def clone(client: Client, volume_id: str) -> None:
    if len(client.world.volumes()) < MOST + 2:
        make(client, "clone", {"source_volid": volume_id}, volume_id)


def from_snapshot(client: Client, volume_id: str) -> None:
    snapshots = client.world.snapshots(volume_id) or client.world.snapshots()
    if snapshots and len(client.world.volumes()) < MOST + 2:
        ident = client.rng.choice(snapshots)
        make(client, "from-snapshot", {"snapshot_id": ident}, ident)


def delete(client: Client, volume_id: str) -> None:
    """Not the last ones, or there would be nothing to do."""
    if len(client.world.volumes()) >= MOST - 4:
        delete_any(client, volume_id)


def delete_any(client: Client, volume_id: str) -> None:
    flags = client.rng.choice(["", "?cascade=true", _FORCE])
    if flags == _FORCE and client.world.project != "storm":
        flags = ""  # force is for administrators
    op = client.begin("delete", volume_id, flags=flags)
    if client.delete(op, f"volumes/{volume_id}{flags}").good:
        client.world.drop(volume_id)


def extend(client: Client, volume_id: str) -> None:
    found = client.volume(volume_id)
    if found and found["size"] < 60:
        size = found["size"] + client.rng.randint(1, 4)
        op = client.begin("extend", volume_id, size=size, calm=client.world.calm)
        if client.act(op, volume_id, "os-extend", {"new_size": size}).good:
            client.watch(op, volume_id)


def snapshot(client: Client, volume_id: str) -> None:
    if len(client.world.snapshots(volume_id)) >= 3:
        return
    name = client.uuid()
    op = client.begin("snapshot", volume_id, name=name, volume=volume_id)
    asked = {"snapshot": {"volume_id": volume_id, "name": name}}
    answer = client.post(op, "snapshots", asked)
    if answer.good:
        ident = answer.body["snapshot"]["id"]
        op.given["id"] = ident
        client.journal.about(op, ident)
        shown = client.get(f"snapshots/{ident}")
        if shown.status == 200 and shown.body["snapshot"]["status"] == "available":
            op.done, op.certain = client.now(), True
        client.world.add_snapshot(volume_id, ident)


def delete_snapshot(client: Client, volume_id: str) -> None:
    snapshots = client.world.snapshots(volume_id)
    if snapshots:
        ident = client.rng.choice(snapshots)
        op = client.begin("delete-snapshot", ident, volume_id)
        answer = client.delete(op, f"snapshots/{ident}")
        if answer.good or answer.status == 404:
            client.world.drop_snapshot(ident)


def revert(client: Client, volume_id: str) -> None:
    snapshots = client.world.snapshots(volume_id)
    if snapshots:
        op = client.begin("revert", volume_id, snapshots[-1], snapshot=snapshots[-1])
        asked = {"snapshot_id": snapshots[-1]}
        if client.act(op, volume_id, "revert", asked).good:
            client.watch(op, volume_id)
            op.certain = op.result == "available"


def retype(client: Client, volume_id: str) -> None:
    """Some flip_multiattach whether several hosts may have it, some move it."""
    kind = client.rng.choice(list(TYPES))
    policy = client.rng.choice(["never", "on-demand"])
    _retype(client, volume_id, kind, policy)


def flip_multiattach(client: Client, volume_id: str) -> None:
    """Only whether several hosts may have it."""
    _retype(client, volume_id, client.rng.choice(["shared", "single"]), "never")


def share(client: Client, volume_id: str) -> None:
    _retype(client, volume_id, "shared", "never")


def reserve_for_one(client: Client, volume_id: str) -> None:
    _retype(client, volume_id, "single", "never")


def _retype(client: Client, volume_id: str, kind: str, policy: str) -> None:
    op = client.begin("retype", volume_id, type=kind, policy=policy)
    asked = {"new_type": kind, "migration_policy": policy}
    if client.act(op, volume_id, "os-retype", asked).good:
        client.watch(op, volume_id)


def migrate(client: Client, volume_id: str) -> None:
    migrate_to(client.rng.choice(BACKENDS))(client, volume_id)


def migrate_to(backend: str) -> Work:
    """A migration to this backend, for several clients that want the same."""

    def asked(client: Client, volume_id: str) -> None:
        op = client.begin("migrate", volume_id, to=backend)
        body = {"host": client.world.host_of(backend)}
        if client.act(op, volume_id, "os-migrate_volume", body).good:
            client.watch(op, volume_id)

    return asked


def rename(client: Client, volume_id: str) -> None:
    """Write a description and metadata. The last ones written must remain."""
    text = client.uuid()
    op = client.begin("rename", volume_id, text=text)
    asked = {"volume": {"description": text, "metadata": {"by": text}}}
    if client.api.ask(op, "PUT", f"/v3/volumes/{volume_id}", asked).good:
        op.done, op.certain = op.answered, True


def unmanage(client: Client, volume_id: str) -> None:
    op = client.begin("unmanage", volume_id)
    if client.act(op, volume_id, "os-unmanage", None).good:
        client.watch(op, volume_id)
        client.world.drop(volume_id)
        shown = client.get(f"volumes/{volume_id}")
        if shown.status == 404:
            op.done, op.certain = client.now(), True
    if op.status is None or op.status in (202, 500, 503):
        for backend in BACKENDS:  # the answer does not name its backend
            client.world.add_foreign_disk(backend, f"unmanaged-{volume_id}")


def manage(client: Client) -> None:
    offered = client.world.pick_foreign_disk(client.rng)
    if offered is None or len(client.world.volumes()) >= MOST + 2:
        return
    backend, reference = offered
    name = client.uuid()
    old = reference.removeprefix("unmanaged-")
    op = client.begin("manage", old, reference, name=name, reference=reference)
    asked = {
        "host": client.world.host_of(backend),
        "ref": {"source-name": reference},
        "name": name,
        "description": "",
    }
    answer = client.post(op, "manageable_volumes", {"volume": asked})
    _note_created(client, op, answer)
    if answer.good:
        client.world.remove_foreign_disk(reference)
