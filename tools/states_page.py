# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print docs/states.md from the tables of states: ``make states``."""

from __future__ import annotations

from lunshare.agent.model.states import (
    ATTACHMENT_PRIORITY,
    ATTACHMENT_TRANSITIONS,
    SNAPSHOT_TRANSITIONS,
    VOLUME_TRANSITIONS,
)

_NOTES = """
So one attached host makes the volume `in-use`, whatever is in progress for others;
without one, `attaching` comes before `detaching`, and both before `reserved`. An
attachment that is `attached`, and whose detach a client has announced with
`os-begin_detaching`, counts as `detaching`; the host has its access until it is closed.

**error_attaching** does not count. The target refused, the access is closed, and the
volume is as if the host had not asked: a plain volume can go to another host. Only
where it is not proven that the access is closed does the attachment keep its initiator,
and no other host gets a plain volume until a reconcile has closed it.

**error_detaching** counts as `detaching`. The access may still be open, so the volume
is not available. A repeated detach, each reconcile, or `os-force_detach` ends it.

## A volume that no pool can hold

It is `error` from its first commit on, without `creating` before: no backend is up,
enabled, large enough, or meets its type and hints. It has no host and no disk. The
commit also has its user message, so a kill leaves both or none. It counts for the
quotas. Its delete removes it before the answer, because no work is left to do.

## Statuses that an administrator sets

`os-reset_status` can set `creating`, `error`, `error_deleting`, `extending`, `retyping`
and `maintenance` for a volume on which no operation works. Nothing is done for such a
status: the row keeps the former one (`reset_from`), and a restart does not continue it.
`available` gives the former one back, or makes a volume in an error available if its
disk is complete. `in-use`, `reserved`, `attaching` and `detaching` come from
attachments: `in-use` and `detaching` need an attached host, `reserved` and `attaching`
make a reservation. With `attach_status` `detached` every attachment is deleted and its
access closed. At the end the target has what the rows ask for.

A volume that is `readonly` gives every new attachment the mode `ro`, at the target too.
The flag changes only while the volume is `available`, so no existing attachment changes
its mode. The writers policy of a volume (`lunshare:writers`, `lunshare:max_writers`)
does the same for each host that it does not let write
([0036](decisions/0036-who-may-write.md)).
"""


def page() -> str:
    """Return docs/states.md."""
    parts = [
        "# States\n\nGenerated from `lunshare/agent/model/states.py`"
        " by `make states`.\n"
    ]
    for title, changes in (
        ("Volume", VOLUME_TRANSITIONS),
        ("Snapshot", SNAPSHOT_TRANSITIONS),
        ("Attachment", ATTACHMENT_TRANSITIONS),
    ):
        parts.append(f"\n## {title}\n\n```mermaid\nstateDiagram-v2\n")
        parts += [f"    {old} --> {new}: {why}\n" for old, new, why in changes]
        parts.append("```\n\n| from | to | when |\n|---|---|---|\n")
        parts += [f"| {old} | {new} | {why} |\n" for old, new, why in changes]
    parts.append(
        "\n## The status of a volume that a client sees\n\nIts own status, unless that"
        " is `available`; then the first of these that one of its attachments has:\n\n"
        "| attachment | volume |\n|---|---|\n"
    )
    parts += [
        f"| {attached} | {volume} |\n" for attached, volume in ATTACHMENT_PRIORITY
    ]
    parts.append(_NOTES)
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
