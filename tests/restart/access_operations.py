# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What clients do with the access of two hosts, and what an answer to it promises.

An operation on host ``a`` is one on host ``b`` after ``mirrored``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lunshare.agent.model.errors import AgentError
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.model.records import Mode, NewAttachment, NewBatch
from lunshare.agent.service.attachments.handover import NewHandover
from tests.restart.interleaving import Client
from tests.restart.node_states import Clock, Live
from tests.stands.node import CTX, Node, host_connector, initiator

_OTHER = {"a": "b", "b": "a"}
_RAISES = frozenset(
    {"attach", "reconnect", "promote", "hand over", "unfence", "fence and unfence"}
    | {"attach both", "lend", "time"}
)
_LOWERS = frozenset(
    {"detach", "reconnect", "demote", "hand over", "fence", "fence and unfence"}
    | {"detach both", "time"}
)
#: Of both hosts, whichever one they name.
_OF_BOTH = frozenset({"hand over", "attach both", "detach both", "time"})
#: Seconds of a lease, of a renewed one, and after which each has ended.
_TTL, _RENEWED, LATE = 10, 1000, 5000
#: Which operations of others may end what an answer says of the target.
_UNDONE = {
    "rw": _LOWERS,
    "ro": _LOWERS | _RAISES,
    "no writes": _RAISES,
    "no access": frozenset({"attach", "attach both", "connect"}),
    "renewed": _LOWERS - {"time"},
    "access of both": frozenset({"detach", "detach both", "reconnect", "fence"})
    | {"fence and unfence", "hand over"},
    "no access of both": frozenset({"attach", "attach both", "connect"}),
    "handed over": _LOWERS | _RAISES,
    "fenced": frozenset({"unfence", "fence and unfence"}),
    "fenced writes": frozenset({"unfence", "fence and unfence"}),
}


@dataclass(frozen=True)
class Scene:
    """The node, the volume, and the attachment of each host, if it has one."""

    node: Node
    volume_id: str
    ids: dict[str, str]
    clock: Clock

    def of(self, host: str) -> str:
        """The attachment of a host; of one without any, one that is not there."""
        return self.ids.get(f"{host}-0", "00000000-0000-4000-8000-000000000000")


#: Returns what was answered: "" where nothing is promised.
Work = Callable[[Scene, str], str]


@dataclass(frozen=True)
class Operation:
    """What is done, to which host.

    ``needs``: whether the host needs an attachment for it.
    """

    name: str
    work: Work
    host: str = "a"
    needs: bool = True

    @property
    def mirrored(self) -> Operation:
        return replace(self, host=_OTHER[self.host])

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    def __str__(self) -> str:
        return f"{self.name} {self.host}"

    def client(self, scene: Scene) -> Client:
        return partial(self._run, scene)

    def _run(self, scene: Scene) -> str:
        """Its answer, or the family of its error."""
        try:
            return self.work(scene, self.host)
        except AgentError as error:
            return f"error: {type(error).__name__}"
        except Exception as error:
            raise AssertionError(f"{self} would be a 500: {error!r}") from error

    def is_undone_by(self, other: Operation, answer: str) -> bool:
        """Whether the other one may change what this one was answered."""
        if other.kind not in _UNDONE.get(answer, ()):
            return False
        both = not _OF_BOTH.isdisjoint((self.kind, other.kind))
        return both or other.host == self.host

    def is_kept(self, answer: str, live: Live) -> bool:
        """Whether the target does what was answered."""
        mode, other = (
            live.get(initiator(host)) for host in (self.host, _OTHER[self.host])
        )
        return {
            "rw": mode == "rw",
            "renewed": mode == "rw",
            "access of both": None not in (mode, other),
            "no access of both": mode is other is None,
            "ro": mode == "ro",
            "no writes": mode != "rw",
            "no access": mode is None,
            "handed over": mode == "rw" and other != "rw",
            "fenced": mode is None,
            "fenced writes": mode != "rw",
        }.get(answer, True)


def _attach(mode: Mode | None, scene: Scene, host: str) -> str:
    new = NewAttachment(scene.volume_id, mode=mode, connector=host_connector(host))
    row = scene.node.services.attachments.create(CTX, new)
    return str(row.mode)


def _detach(scene: Scene, host: str) -> str:
    scene.node.services.attachments.delete(CTX, scene.of(host))
    return "no access"


def _reconnect(scene: Scene, host: str) -> str:
    connector = host_connector(f"{host}2")
    scene.node.services.attachments.connect(CTX, scene.of(host), connector)
    return "no access"


def _connect_again(scene: Scene, host: str) -> str:
    """With the connector that it has, and another mountpoint."""
    connector = host_connector(host, mountpoint="/dev/vdb")
    row = scene.node.services.attachments.connect(CTX, scene.of(host), connector)
    return str(row.mode)


def _change(mode: Mode, drain: bool, scene: Scene, host: str) -> str:
    changed = scene.node.services.mode_changes.change(CTX, scene.of(host), mode, drain)
    if changed.pending:
        return ""
    return "rw" if mode is Mode.RW else "no writes"


def _hand_over(named: bool, force: bool, scene: Scene, host: str) -> str:
    """To this host, from the other one, or from all."""
    source = scene.of(_OTHER[host]) if named else None
    new = NewHandover(scene.volume_id, scene.of(host), source, force)
    shown = scene.node.services.handovers.hand_over(CTX, new)
    return "handed over" if shown["handover"]["status"] == "done" else ""


def _fence(writes_only: bool, seconds: float, scene: Scene, host: str) -> str:
    fence = scene.node.services.fences.fence(CTX, host, writes_only, seconds)
    if fence.status != "fenced":
        return ""
    return "fenced writes" if fence.fence == "writes" else "fenced"


def _unfence(scene: Scene, host: str) -> str:
    scene.node.services.fences.unfence(CTX, host)
    return ""


def _fence_for_a_moment(scene: Scene, host: str) -> str:
    _fence(False, 0.0, scene, host)
    return _unfence(scene, host)


def _limit(most: int | None, scene: Scene, host: str) -> str:
    policy = {} if most is None else {"lunshare:max_writers": str(most)}
    scene.node.services.metadata.change(CTX, scene.volume_id, lambda _: policy)
    return ""


def _limit_to_both(scene: Scene, host: str) -> str:
    policy = {"lunshare:writers": "a, b", "lunshare:max_writers": "1"}
    scene.node.services.metadata.change(CTX, scene.volume_id, lambda _: policy)
    return ""


def _lend(then_next: bool, scene: Scene, host: str) -> str:
    change, lease = scene.node.services.mode_changes.change, NewLease(_TTL, then_next)
    return str(change(CTX, scene.of(host), Mode.RW, lease=lease).row.mode)


def _renew(scene: Scene, host: str) -> str:
    scene.node.services.leases.renew(CTX, scene.of(host), _RENEWED)
    return "renewed"


def _let_time_pass(scene: Scene, host: str) -> str:
    """As long as a lease lasts, at one moment; then the timer looks."""
    with scene.node.assembly.database.writing():
        scene.clock.now += _TTL
    scene.node.services.leases.end_due()
    return ""


def _attach_both(mode: Mode | None, scene: Scene, host: str) -> str:
    hosts = [host_connector(name) for name in ("a", "b")]
    new = NewBatch(scene.volume_id, "the key", hosts, mode)
    scene.node.services.batches.attach(CTX, new)
    return "access of both"


def _detach_both(scene: Scene, host: str) -> str:
    ids = [scene.of(name) for name in ("a", "b")]
    scene.node.services.batches.detach(CTX, scene.volume_id, ids)
    return "no access of both"


def _reconcile(scene: Scene, host: str) -> str:
    scene.node.assembly.reconcile.run()
    return ""


_ATTACHES = Operation("attach: rw", partial(_attach, Mode.RW), needs=False)
_HANDS_OVER = Operation("hand over: from one", partial(_hand_over, True, False))
_FENCES = Operation("fence", partial(_fence, False, 5.0), needs=False)
_DEMOTES = Operation("demote", partial(_change, Mode.RO, True))
_OF_A_HOST = (
    _ATTACHES,
    Operation("detach", _detach),
    _DEMOTES,
    Operation("promote", partial(_change, Mode.RW, True)),
    _HANDS_OVER,
    _FENCES,
    Operation("unfence", _unfence, needs=False),
)
#: The same in other words, and what is decided elsewhere.
_VARIANTS = (
    Operation("reconnect", _reconnect),
    Operation("connect: again", _connect_again),
    replace(
        _HANDS_OVER, name="hand over: by force", work=partial(_hand_over, True, True)
    ),
    Operation("attach: ro", partial(_attach, Mode.RO), needs=False),
    Operation("attach: no mode", partial(_attach, None), needs=False),
    replace(_DEMOTES, name="demote: at once", work=partial(_change, Mode.RO, False)),
    replace(
        _HANDS_OVER, name="hand over: from all", work=partial(_hand_over, False, False)
    ),
    replace(_FENCES, name="fence: of writes", work=partial(_fence, True, 5.0)),
    replace(_FENCES, name="fence: at once", work=partial(_fence, False, 0.0)),
    Operation("fence and unfence", _fence_for_a_moment, needs=False),
    Operation("lend", partial(_lend, False)),
    Operation("lend: then the next", partial(_lend, True)),
    Operation("renew", _renew),
)
_OF_NO_HOST = (Operation("limit: to 1", partial(_limit, 1), needs=False),)
_OF_TWO_HOSTS = (
    Operation("attach both: ro", partial(_attach_both, Mode.RO), needs=False),
    Operation("attach both: no mode", partial(_attach_both, None), needs=False),
    Operation("detach both", _detach_both),
    Operation("limit: of both", _limit_to_both, needs=False),
    Operation("time", _let_time_pass, needs=False),
)
#: It reads so much without a lock that there are many orders.
_OF_A_TIMER = (
    Operation("reconcile", _reconcile, needs=False),
    Operation("limit: to 0", partial(_limit, 0), needs=False),
    Operation("limit: none", partial(_limit, None), needs=False),
)


def _of_both(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    return (*operations, *(each.mirrored for each in operations))


#: What a client does, of each host.
USUAL = (*_of_both(_OF_A_HOST), *_OF_NO_HOST)
EVERY = (*USUAL, *_of_both(_VARIANTS), *_OF_TWO_HOSTS, *_OF_A_TIMER)
NAMED = {str(each): each for each in EVERY}


def can_be_together(*operations: Operation) -> bool:
    """Whether two clients do this; there is one timer."""
    return [each.kind for each in operations].count("reconcile") < 2


def exists(operation: Operation, ids: Mapping[str, str]) -> bool:
    """Whether the attachment is there that it needs."""
    return not operation.needs or f"{operation.host}-0" in ids


def end_all(scene: Scene) -> None:
    """Give every host back what it has lost, then detach it."""
    services = scene.node.services
    for host in ("a", "b"):
        services.fences.unfence(CTX, host)
    for attachment_id in scene.ids.values():
        services.attachments.delete(CTX, attachment_id)
