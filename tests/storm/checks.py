# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The invariants, one function each: it yields a sentence for each violation.

Each one compares the answers to clients, the rows in the API and the content of the
storage, at a time when nothing is in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lunshare.drivers.values import GIB
from tests.storm import marks, model
from tests.storm.journal import Journal
from tests.storm.model import Model, Register
from tests.storm.observation import Observation

Found = Iterator[tuple[str, tuple[str, ...]]]
_NEW = ("create", "clone", "from-snapshot", "manage")
_HALF = frozenset({"error", "error_managing", "error_deleting"})
_WANTED = frozenset({"attaching", "attached"})


def each_row_has_its_disk(seen: Observation, journal: Journal) -> Found:
    """A volume has one disk: on its backend, complete, and of its size."""
    for ident, row in seen.volumes.items():
        disks = seen.disks(ident)
        if row["status"] in _HALF:
            continue
        if list(disks) != [seen.backend(ident)]:
            sentence = (
                f"its row is on {seen.backend(ident)}, its disks are on {list(disks)}"
            )
            yield sentence, (ident,)
            continue
        [(size, whole, _)] = disks.values()
        if size != row["size"] * GIB and row["status"] != "error_extending":
            yield f"it has {row['size']} GiB, its disk {size / GIB:g}", (ident,)
        if not whole:
            yield "its disk is incomplete", (ident,)


def each_disk_has_its_row(seen: Observation, journal: Journal) -> Found:
    """No disk or snapshot exists without a row."""
    for name, held in seen.storage.items():
        for ident in held["disks"].keys() - seen.volumes.keys():
            yield f"a disk on {name} has no row", (ident,)
        for ident in held["snapshots"].keys() - seen.snapshots.keys():
            yield f"a snapshot on {name} has no row", (ident,)


def each_snapshot_has_its_bytes(seen: Observation, journal: Journal) -> Found:
    """An available snapshot is on the backend of its volume."""
    for ident, row in seen.snapshots.items():
        if row["status"] == "available":
            volume_id = row["volume_id"]
            if volume_id not in seen.volumes:
                yield f"its volume {volume_id} has no row", (ident, volume_id)
            elif ident not in seen.storage[seen.backend(volume_id)]["snapshots"]:
                yield "its bytes are lost", (ident, volume_id)


def a_plain_volume_has_one_host(seen: Observation, journal: Journal) -> Found:
    """A volume without multiattach has the attachments of one instance only."""
    for ident, row in seen.volumes.items():
        rows = seen.of_volume(ident)
        held = {
            attached["instance"] or key
            for key, attached in rows.items()
            if attached["status"] != "error_attaching"
        }
        if not row["multiattach"] and len(held) > 1:
            yield f"it has {len(held)} attachments", (ident, *rows)


def the_live_target_equals_the_rows(seen: Observation, journal: Journal) -> Found:
    """Every access that a row wants is open in its mode, and no other."""
    wanted: dict[tuple[str, str], dict[str, str]] = {}
    for ident, row in seen.attachments.items():
        if row["status"] in _WANTED and row["connection_info"]:
            key = (seen.backend(row["volume_id"]), row["volume_id"])
            initiator = _initiator(journal, ident)
            wanted.setdefault(key, {})[initiator] = row["attach_mode"]
    live = {
        (name, volume_id): {who: mode for who, (mode, _) in acls.items()}
        for name, held in seen.storage.items()
        for volume_id, acls in held["exports"].items()
    }
    for key in wanted.keys() | live.keys():
        rows, open_now = wanted.get(key, {}), live.get(key, {})
        if rows != open_now:
            yield f"on {key[0]} the rows want {rows}, open is {open_now}", (key[1],)


def _initiator(journal: Journal, attachment_id: str) -> str:
    """The initiator that the attachment was last given."""
    given = [
        op.given["initiator"]
        for op in journal.of(attachment_id, "attach", "connect")
        if op.accepted
    ]
    return given[-1] if given else f"no client got {attachment_id}"


def a_client_knows_each_attachment(seen: Observation, journal: Journal) -> Found:
    """An answer created each attachment, and no answer deleted it."""
    for ident, row in seen.attachments.items():
        if not any(op.given.get("id") == ident for op in journal.of(ident, "attach")):
            sentence = f"it is {row['status']}, and no client got it"
            yield sentence, (ident, row["volume_id"])
        for op in journal.of(ident, "detach"):
            if op.accepted:
                yield "its end was acknowledged", (ident, row["volume_id"])


def acknowledged_objects_exist(seen: Observation, journal: Journal) -> Found:
    """They exist until a client deletes them."""
    yield from _volumes_are_there(seen, journal)
    yield from _snapshots_are_there(seen, journal)
    for op in journal.every("attach"):
        ident = op.given.get("id", "")
        gone = ident and op.accepted and ident not in seen.attachments
        if gone and not journal.of(ident, "detach"):
            yield "this attachment is gone", (ident,)
    for op in journal.every("type"):
        ident = op.given.get("id", "")
        if ident and ident not in seen.types and not journal.of(ident, "delete-type"):
            yield "this type is gone", (ident,)


def _volumes_are_there(seen: Observation, journal: Journal) -> Found:
    for op in journal.every(*_NEW):
        ident = op.given.get("id", "")
        ends = journal.of(ident, "delete", "unmanage")
        if ident and ident not in seen.volumes and all(end.refused for end in ends):
            # A creation that fails after its answer leaves a row in error.
            yield f"this volume is gone ({op.what})", (ident,)
        row = seen.volumes.get(ident)
        for end in ends if row and row["status"] not in _HALF else []:
            if end.accepted and (end.what == "delete" or end.certain):
                yield f"its {end.what} was acknowledged", (ident,)


def _snapshots_are_there(seen: Observation, journal: Journal) -> Found:
    for op in journal.every("snapshot"):
        ident = op.given.get("id")
        if ident is None or ident in seen.snapshots:
            continue
        ends = journal.of(ident, "delete-snapshot")
        ends += journal.of(op.given["volume"], "delete")
        if all(end.refused for end in ends):
            yield "this snapshot is gone", (ident, op.given["volume"])


def refused_requests_left_nothing(seen: Observation, journal: Journal) -> Found:
    """A request that failed created nothing."""
    names = {row["name"]: ident for ident, row in seen.volumes.items()}
    names |= {row["name"]: ident for ident, row in seen.snapshots.items()}
    for op in journal.every(*_NEW, "snapshot"):
        if op.status is not None and not op.accepted and op.given["name"] in names:
            ident = names[op.given["name"]]
            yield f"its {op.what} was answered {op.status}: {op.error}", (ident,)


def acknowledged_extends_hold(seen: Observation, journal: Journal) -> Found:
    """The size of an extend that succeeded is not lost.

    One that continues after its answer may still be refused; its row shows why.
    """
    for op in journal.every("extend"):
        [ident] = op.objects
        row = seen.volumes.get(ident)
        grown = op.accepted and op.result in ("available", "in-use", "attaching")
        calm = op.given["calm"] and not op.reason
        if row and grown and calm and row["size"] < op.given["size"]:
            yield f"it was extended to {op.given['size']}, has {row['size']}", (ident,)


def bytes_are_the_written_ones(seen: Observation, journal: Journal) -> Found:
    """Also after snapshots, clones, reverts, migrations and manage."""
    known, registers = Model(journal), list(every_register(journal))
    for ident, row in seen.volumes.items():
        disks = seen.disks(ident)
        if row["status"] in _HALF or seen.backend(ident) not in disks:
            continue
        blocks = disks[seen.backend(ident)][2]
        for register in registers:
            may = known.volume(ident, register, seen.at, seen.at)
            yield from _differs(journal, blocks, register, may, ident)
    for held in seen.storage.values():
        for ident, (_, _, blocks) in held["snapshots"].items():
            for register in registers:
                may = known.snapshot(ident, register)
                yield from _differs(journal, blocks, register, may, ident)


def _differs(
    journal: Journal,
    blocks: dict[int, bytes],
    register: Register,
    may: frozenset[int],
    ident: str,
) -> Found:
    found = marks.number_in(blocks, register.client, register.place)
    if may and found not in may:
        wanted = ", ".join(map(str, sorted(may)))
        yield (
            f"at place {register.place} client-{register.client} wrote {wanted}, there"
            f" is {found}",
            (ident,),
        )


def every_register(journal: Journal) -> Iterator[Register]:
    """The registers that were written."""
    ops = journal.every("write", "put")
    clients = {op.given["client"] for op in ops}
    for client in sorted(clients):
        for place in range(len(marks.PLACES)):
            yield Register(client, place)


def descriptions_are_the_last_written_ones(
    seen: Observation, journal: Journal
) -> Found:
    """The metadata is from the same request."""
    for ident, row in seen.volumes.items():
        may = model.descriptions(journal, ident, seen.at)
        text = row["description"] or ""
        if text not in may:
            yield f"its description is {text!r}, it may be {sorted(may)}", (ident,)
        if row["metadata"].get("by", "") != text:
            yield f"description {text!r}, metadata {row['metadata']}", (ident,)


def unmanaged_disks_exist(seen: Observation, journal: Journal) -> Found:
    """The disk of an unmanaged volume exists as a foreign disk."""
    foreign = {name for held in seen.storage.values() for name in held["foreign"]}
    for op in journal.every("unmanage"):
        [ident] = op.objects
        name = f"unmanaged-{ident}"
        if op.certain and name not in foreign and not journal.of(name, "manage"):
            yield f"{name} is nowhere", (ident,)


_OWNER = "os-vol-tenant-attr:tenant_id"
_OWNER_OF_SNAPSHOT = "os-extended-snapshot-attributes:project_id"


def quotas_count_the_rows(seen: Observation, journal: Journal) -> Found:
    """The usage of each project is what its rows have, whatever was killed."""
    for project, limits in seen.limits.items():
        for key, number in _used(seen, project).items():
            if limits.get(key) != number:
                sentence = f"{key} is {limits.get(key)}, its rows have {number}"
                yield f"project {project}: {sentence}", ("quotas", project)


def _used(seen: Observation, project: str) -> dict[str, int]:
    volumes = [row for row in seen.volumes.values() if row[_OWNER] == project]
    snapshots = seen.snapshots.values()
    kept = [row for row in snapshots if row[_OWNER_OF_SNAPSHOT] == project]
    found = {"totalVolumesUsed": len(volumes), "totalSnapshotsUsed": len(kept)}
    # The size that such a volume has, or will have, is not in its row.
    if not any(row["status"] == "error_extending" for row in volumes):
        found["totalGigabytesUsed"] = sum(row["size"] for row in [*volumes, *kept])
    return found


def quotas_are_kept(seen: Observation, journal: Journal) -> Found:
    """No project has more than its quotas, which do not change."""
    for project, limits in seen.limits.items():
        for key, number in _used(seen, project).items():
            most = limits[_MOST[key]]
            if 0 <= most < number:
                yield f"project {project}: {key} is {number} of {most}", ("quotas",)


_MOST = {
    "totalVolumesUsed": "maxTotalVolumes",
    "totalSnapshotsUsed": "maxTotalSnapshots",
    "totalGigabytesUsed": "maxTotalVolumeGigabytes",
}


INVARIANTS: dict[str, Callable[[Observation, Journal], Found]] = {
    "each row has its disk exactly once": each_row_has_its_disk,
    "each disk has its row": each_disk_has_its_row,
    "each snapshot has its bytes": each_snapshot_has_its_bytes,
    "a plain volume has one host": a_plain_volume_has_one_host,
    "the live target equals the rows": the_live_target_equals_the_rows,
    "a client knows each attachment": a_client_knows_each_attachment,
    "acknowledged objects exist": acknowledged_objects_exist,
    "refused requests left nothing": refused_requests_left_nothing,
    "acknowledged extends hold": acknowledged_extends_hold,
    "bytes are the written ones": bytes_are_the_written_ones,
    "descriptions are the last written ones": descriptions_are_the_last_written_ones,
    "unmanaged disks exist": unmanaged_disks_exist,
    "quotas count the rows": quotas_count_the_rows,
    "quotas are kept": quotas_are_kept,
}


def check(seen: Observation, journal: Journal) -> int:
    """Record each violation; return how many invariants were checked."""
    for name, holds in INVARIANTS.items():
        for sentence, objects in holds(seen, journal):
            journal.find(name, f"{objects[0]}: {sentence}", *objects)
    return len(INVARIANTS)


def remember(seen: Observation, journal: Journal) -> None:
    """Use the observed bytes as the written ones; forget earlier writes."""
    registers = list(every_register(journal))
    for ident in seen.volumes:
        for _, _, blocks in seen.disks(ident).values():
            _remember(journal, ident, blocks, registers)
    for held in seen.storage.values():
        for ident, (_, _, blocks) in held["snapshots"].items():
            _remember(journal, ident, blocks, registers)


def _remember(
    journal: Journal, ident: str, blocks: dict[int, bytes], of: list[Register]
) -> None:
    class Marks(dict[Register, int]):
        def __missing__(self, key: Register) -> int:
            return 0  # a client without a write so far

    found = {r: marks.number_in(blocks, r.client, r.place) or 0 for r in of}
    with journal.mark("storm", "seen", ident) as op:
        op.given["marks"], op.certain = Marks(found), True
