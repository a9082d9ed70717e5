# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a host may write where its volume has a writers policy.

Pure. What it decides on is read in the transaction that commits the attachment, or the
policy (``lunshare.agent.service.attachments.access``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import Attachment
from lunshare.agent.service.attachments import refusals
from lunshare.drivers.writers import WritersPolicy

#: Returns the attachments of a volume whose hosts may be writing.
Present = Callable[[], Sequence[Attachment]]


def refusal(
    policy: WritersPolicy, row: Attachment, present: Present
) -> Conflict | None:
    """Return why the host of ``row`` may not write, None if it may.

    ``present`` is asked only where the number of writers counts.
    """
    if not _is_named(policy, row):
        return refusals.not_a_writer(row)
    if policy.most is None:
        return None
    others = [other for other in present() if other.id != row.id]
    if len({*_hosts(others), _host(row)}) <= policy.most:
        return None
    return refusals.too_many_writers(row, policy.most, others)


def excluded(policy: WritersPolicy, present: Iterable[Attachment]) -> list[Attachment]:
    """Return the attachments that may be writing and that the policy does not allow.

    Where there are too many writers, these are all of them.
    """
    rows = list(present)
    if policy.most is not None and len(_hosts(rows)) > policy.most:
        return rows
    return [
        row
        for row in rows
        if not _is_named(policy, row) or (policy.lists and row.former_initiator)
    ]


def _is_named(policy: WritersPolicy, row: Attachment) -> bool:
    return policy.names(row.instance_uuid, row.attached_host, row.initiator)


def _host(row: Attachment) -> str:
    """Return what counts as one writer.

    A server has a row for each of its two hosts while it migrates.
    """
    return str(row.instance_uuid or row.initiator or row.id)


def _hosts(rows: Iterable[Attachment]) -> set[str]:
    """Return the writers of these rows, also those that a new connector replaces."""
    hosts = set()
    for row in rows:
        if row.writes:
            hosts.add(_host(row))
        if row.former_initiator:
            hosts.add(row.instance_uuid or row.former_initiator)
    return hosts
