# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas: what a project may have, and the check of what it is about to have.

``check`` runs in the transaction that writes the rows, after they are written: the
usage it reads has them. If it raises, the transaction is rolled back, and with it
the usage. So two requests can not both get the last volume, and a kill leaks none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lunshare.agent.db import quotas
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Invalid, OverQuota
from lunshare.agent.model.quota_table import (
    ALL_TYPES,
    GIGABYTES,
    PER_TYPE,
    RESOURCES,
    SNAPSHOTS,
    UNLIMITED,
    VOLUME_SIZE,
    VOLUMES,
    Quota,
    Usage,
)
from lunshare.agent.model.records import RequestContext, Volume

QuotaSet = list[Quota]

_NAMES = tuple(resource.name for resource in RESOURCES)


class Quotas:
    """The quotas of every project."""

    def __init__(
        self, db: Database, defaults: Mapping[str, int], count_snapshots: bool
    ) -> None:
        """``defaults``: the limit of each resource; see ``quota_table``.

        ``count_snapshots``: the GiB of snapshots are part of ``gigabytes``.
        """
        self._db, self._defaults = db, dict(defaults)
        self._count_snapshots = count_snapshots

    def check(
        self,
        connection: Connection,
        project: str,
        type_id: str | None,
        *resources: str,
        size: int | None = None,
        totals: bool = True,
    ) -> None:
        """Check what a project has, with the rows that this transaction has written.

        ``resources`` are those that it has more of now. Without ``totals`` only the
        quotas of the volume type are checked. ``size`` is that of the volume in GiB.

        :raises OverQuota: names the quota; the transaction must be rolled back.
        """
        limits = self._limits(quotas.limits(connection, project))
        used = quotas.usage(connection, project, self._count_snapshots)
        if size is not None and 0 <= limits[VOLUME_SIZE, ALL_TYPES] < size:
            raise _too_large(size, limits[VOLUME_SIZE, ALL_TYPES])
        for of in (*([ALL_TYPES] if totals else []), *([type_id] if type_id else [])):
            for resource in resources:
                limit = limits.get((resource, of), UNLIMITED)
                now = _used(used, of).amount(resource)
                if 0 <= limit < now:
                    type_name = _name(connection, of)
                    raise _exceeded(project, resource, type_name, limit, now)

    def check_new_volume(self, connection: Connection, volume: Volume) -> None:
        """Check the quotas of a volume that this transaction has inserted.

        :raises OverQuota: names the quota; the transaction must be rolled back.
        """
        of = volume.project_id, volume.volume_type_id
        self.check(connection, *of, VOLUMES, GIGABYTES, size=volume.size)

    def show(self, ctx: RequestContext, project: str) -> QuotaSet:
        """Return the limits of a project, and how much of each it uses."""
        with self._db.reading() as connection:
            limits = self._limits(quotas.limits(connection, project))
            used = quotas.usage(connection, project, self._count_snapshots)
            return list(_lines(limits, used, quotas.type_names(connection)))

    def defaults(self, ctx: RequestContext) -> QuotaSet:
        """Return the limits of a project for which none was set."""
        return self.show_class(ctx, quotas.DEFAULT_CLASS)

    def show_class(self, ctx: RequestContext, name: str) -> QuotaSet:
        """Return the limits of a class. Every project is of the class ``default``."""
        with self._db.reading() as connection:
            limits = self._limits(quotas.of_class(connection, name))
            return list(_lines(limits, {}, quotas.type_names(connection)))

    def update(
        self, ctx: RequestContext, project: str, new: Mapping[str, int]
    ) -> QuotaSet:
        """Set limits of a project, by their keys.

        :raises Invalid: a key is unknown, or a limit is less than what is used.
        """
        with self._db.writing() as connection:
            types = quotas.type_names(connection)
            used = quotas.usage(connection, project, self._count_snapshots)
            limits = {_parse(key, types): limit for key, limit in new.items()}
            for (resource, of), limit in limits.items():
                _check_used(resource, limit, _used(used, of))
            quotas.put(connection, quotas.PROJECT, project, limits)
        return self.show(ctx, project)

    def update_class(
        self, ctx: RequestContext, name: str, new: Mapping[str, int]
    ) -> QuotaSet:
        """Set limits of a class, by their keys.

        :raises Invalid: a key is unknown.
        """
        with self._db.writing() as connection:
            types = quotas.type_names(connection)
            limits = {_parse(key, types): limit for key, limit in new.items()}
            quotas.put(connection, quotas.CLASS, name, limits)
        return self.show_class(ctx, name)

    def delete(self, ctx: RequestContext, project: str) -> None:
        """Delete the limits of a project; the defaults hold again."""
        with self._db.writing() as connection:
            quotas.forget(connection, project)

    def _limits(
        self, found: Mapping[tuple[str, str], int]
    ) -> dict[tuple[str, str], int]:
        default = {(name, ALL_TYPES): limit for name, limit in self._defaults.items()}
        return {**default, **found}


def _lines(
    limits: Mapping[tuple[str, str], int],
    used: Mapping[str, Usage],
    types: Mapping[str, str],
) -> Iterator[Quota]:
    every = _used(used, ALL_TYPES)
    for resource in _NAMES:
        limit = limits[resource, ALL_TYPES]
        yield Quota(resource, limit, every.amount(resource))
    for name, type_id in types.items():
        for resource in PER_TYPE:
            limit = limits.get((resource, type_id), UNLIMITED)
            yield Quota(
                _key(resource, name), limit, _used(used, type_id).amount(resource)
            )


def _used(used: Mapping[str, Usage], of: str) -> Usage:
    if of == ALL_TYPES:
        return sum(used.values(), Usage())
    return used.get(of, Usage())


def _key(resource: str, type_name: str) -> str:
    return f"{resource}_{type_name}" if type_name else resource


def _name(connection: Connection, type_id: str) -> str:
    names = quotas.type_names(connection)
    return next((name for name, ident in names.items() if ident == type_id), "")


def _parse(key: str, types: Mapping[str, str]) -> tuple[str, str]:
    """Return the resource and the id of the volume type that a key names."""
    if key in _NAMES:
        return key, ALL_TYPES
    resource, _, name = key.partition("_")
    if resource in PER_TYPE and name in types:
        return resource, types[name]
    raise Invalid(
        f"quota {key[:64]!r} is unknown: give one of {', '.join(_NAMES)}, or"
        f" {', '.join(PER_TYPE)} with _ and the name of a volume type"
    )


def _check_used(resource: str, limit: int, used: Usage) -> None:
    if limit != UNLIMITED and limit < used.amount(resource):
        raise Invalid(
            f"{resource}: {limit} is less than the {used.amount(resource)} that the"
            " project has; give that or more, or -1 for no limit"
        )


# Clients of Cinder know a quota by these names, which its answers begin with.
_CINDER_NAMES = {
    VOLUMES: "VolumeLimitExceeded",
    SNAPSHOTS: "SnapshotLimitExceeded",
    GIGABYTES: "VolumeSizeExceedsAvailableQuota",
    VOLUME_SIZE: "VolumeSizeExceedsLimit",
}


# Tempest, and clients made like it, take a 413 without "exceed" for a rate limit.
def _too_large(size: int, limit: int) -> OverQuota:
    return OverQuota(
        f"{_CINDER_NAMES[VOLUME_SIZE]}: quota {VOLUME_SIZE} exceeded: a volume may have"
        f" {limit} GiB, not {size}; ask for less"
    )


def _exceeded(
    project: str, resource: str, type_name: str, limit: int, now: int
) -> OverQuota:
    unit, key = " GiB" if resource == GIGABYTES else "", _key(resource, type_name)
    return OverQuota(
        f"{_CINDER_NAMES[resource]}: quota {key} exceeded: project {project} would have"
        f" {now}{unit} of at most {limit}; delete some, or ask an administrator for a"
        " larger quota"
    )
