# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""QoS specs: limits of volume types that hosts enforce.

Hosts get them in connection_info. No backend enforces any, so specs that backends
alone would have to enforce can not be associated with a type: they would have no
effect. Of those for both, hosts enforce their part, and the log names the other one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from oslo_log import log

from lunshare.agent.db import qos
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.qos_table import (
    BOTH,
    CONSUMERS,
    DEFAULT_CONSUMER,
    FRONT_END,
    NUMBERS,
    QosSpecs,
    for_host,
)
from lunshare.agent.model.records import RequestContext, Volume
from lunshare.agent.service.types.type_access import require_type

LOG = log.getLogger(__name__)

_CONSUMER = "consumer"
SpecsList = list[QosSpecs]
Associations = list[tuple[str, str]]


class Qos:
    """The QoS specs of this node."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def create(
        self, ctx: RequestContext, name: str, given: Mapping[str, str]
    ) -> QosSpecs:
        """Create QoS specs; the key ``consumer`` of them says who enforces them.

        :raises Invalid: the consumer, or the value of a known key.
        :raises Conflict: the name is in use.
        """
        specs = dict(given)
        consumer = specs.pop(_CONSUMER, DEFAULT_CONSUMER)
        _check(consumer, specs)
        new = QosSpecs(str(uuid.uuid4()), name, consumer, specs)
        with self._db.writing() as connection:
            qos.insert(connection, new)
        return new

    def get(self, ctx: RequestContext, qos_id: str) -> QosSpecs:
        """Return QoS specs by their id.

        :raises NotFound: they do not exist.
        """
        with self._db.reading() as connection:
            return qos.require(connection, qos_id)

    def list(self, ctx: RequestContext) -> SpecsList:
        """Return all QoS specs, the newest first."""
        with self._db.reading() as connection:
            return qos.every(connection)

    def update(
        self, ctx: RequestContext, qos_id: str, given: Mapping[str, str]
    ) -> None:
        """Add or replace specs; others stay. Hosts get them when they attach.

        :raises NotFound: the QoS specs.
        :raises Invalid: the consumer, or the value of a known key.
        """
        with self._db.writing() as connection:
            old = qos.require(connection, qos_id)
            specs = {**old.specs, **given}
            consumer = specs.pop(_CONSUMER, old.consumer)
            _check(consumer, specs)
            has_types = bool(qos.types(connection, qos_id))
            if has_types:
                _check_enforced(old.name, consumer)
            qos.update(connection, qos_id, consumer, specs)
        if has_types:
            _log_not_enforced(old.name, consumer)

    def delete_keys(
        self, ctx: RequestContext, qos_id: str, keys: Collection[str]
    ) -> None:
        """Delete some of the specs.

        :raises NotFound: the QoS specs, or one of the keys; then nothing is deleted.
        """
        with self._db.writing() as connection:
            old = qos.require(connection, qos_id)
            for key in keys:
                if key not in old.specs:
                    raise NotFound(f"key of qos_specs {qos_id}:", key)
            specs = {k: text for k, text in old.specs.items() if k not in keys}
            qos.update(connection, qos_id, old.consumer, specs)

    def delete(self, ctx: RequestContext, qos_id: str, force: bool) -> None:
        """Delete QoS specs; with ``force`` also while volume types name them.

        :raises NotFound: they do not exist.
        :raises Invalid: a volume type names them.
        """
        with self._db.writing() as connection:
            old = qos.require(connection, qos_id)
            of = qos.types(connection, qos_id)
            if of and not force:
                raise Invalid(
                    f"qos_specs {old.name} are of {len(of)} volume types:"
                    " disassociate them first, or give force=true"
                )
            qos.delete(connection, qos_id)

    def associations(self, ctx: RequestContext, qos_id: str) -> Associations:
        """Return id and name of the volume types that name these specs.

        :raises NotFound: the QoS specs.
        """
        with self._db.reading() as connection:
            qos.require(connection, qos_id)
            return qos.types(connection, qos_id)

    def associate(self, ctx: RequestContext, qos_id: str, type_id: str) -> None:
        """Give a volume type these specs; its hosts get them when they attach.

        :raises NotFound: the QoS specs, or the type.
        :raises Invalid: the type has other specs, or the consumer of these is
            back-end: no backend of this node enforces limits.
        """
        with self._db.writing() as connection:
            specs, kind = (
                qos.require(connection, qos_id),
                require_type(connection, ctx, type_id),
            )
            _check_enforced(specs.name, specs.consumer)
            if kind.qos_specs_id not in (None, qos_id):
                raise Invalid(
                    f"vol_type_id: volume_type {kind.name} has qos_specs"
                    f" {kind.qos_specs_id}; disassociate those first."
                )
            qos.set_type(connection, type_id, qos_id)
        _log_not_enforced(specs.name, specs.consumer)

    def disassociate(self, ctx: RequestContext, qos_id: str, type_id: str) -> None:
        """Take these specs from a volume type; one without them stays as it is.

        :raises NotFound: the QoS specs, or the type.
        """
        with self._db.writing() as connection:
            qos.require(connection, qos_id)
            if require_type(connection, ctx, type_id).qos_specs_id == qos_id:
                qos.set_type(connection, type_id, None)

    def disassociate_all(self, ctx: RequestContext, qos_id: str) -> None:
        """Take these specs from every volume type.

        :raises NotFound: the QoS specs.
        """
        with self._db.writing() as connection:
            qos.require(connection, qos_id)
            qos.set_types(connection, qos_id, None)


def of_volume(db: Database, volume: Volume) -> dict[str, str] | None:
    """Return the limits of a volume's type that its host enforces, or None."""
    if volume.volume_type_id is None:
        return None
    with db.reading(one_statement=True) as connection:
        specs = qos.of_type(connection, volume.volume_type_id)
    return for_host(specs, volume.size)


def _check(consumer: str, specs: Mapping[str, str]) -> None:
    if consumer not in CONSUMERS:
        raise Invalid(f"qos_specs.consumer: give one of {', '.join(CONSUMERS)}.")
    for key in sorted(NUMBERS & specs.keys()):
        text = specs[key]
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise Invalid(f"qos_specs.{key}: give a whole number, 0 or more.")


def _check_enforced(name: str, consumer: str) -> None:
    if consumer not in (FRONT_END, BOTH):
        raise Invalid(
            f"qos_specs {name} have consumer {consumer}, and no backend of this node"
            f" enforces limits: use consumer {FRONT_END} for those of a volume type"
        )


def _log_not_enforced(name: str, consumer: str) -> None:
    """Name what has no effect: the part of the backends."""
    if consumer == BOTH:
        LOG.warning(
            "qos_specs %s: hosts enforce them, the backends of this node do not;"
            " consumer = both",
            name,
        )
