# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How a live export differs from the wanted one: the difference as data."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from lunshare.drivers.values import Export, LiveExport, Mode


class DriftKind(enum.StrEnum):
    """What differs. ``apply`` puts each right, except what is ``FOREIGN``."""

    #: A host can do more than is wanted. It is closed before anything is opened.
    WIDER = "wider"
    #: A wanted access is missing, or allows less.
    NARROWER = "narrower"
    #: A host logs in with another user or secret, or without one.
    CREDENTIAL = "credential"
    #: A setting of the target, its backstores or its ACLs has another value.
    ATTRIBUTE = "attribute"
    #: The target listens at an address too many, or not at one that it should have.
    PORTAL = "portal"
    #: The target is missing, disabled, incomplete, or has another disk.
    TARGET = "target"
    #: lunshare has not made it. It is reported, and not touched.
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference. ``what`` is a sentence without any credential.

    ``initiator`` is the host that it concerns, None where it is the whole target.
    """

    kind: DriftKind
    what: str
    initiator: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether ``apply`` puts it right."""
        return self.kind is not DriftKind.FOREIGN


def of_accesses(export: Export, live: LiveExport | None) -> Iterator[Drift]:
    """Return how the live accesses differ from the wanted ones, as far as seen."""
    connectors = {connector.initiator: connector for connector in export.connectors}
    modes = {acl.initiator: acl.mode for acl in live.connectors} if live else {}
    for initiator in sorted(modes.keys() - connectors.keys()):
        what = f"{initiator} has access, and no attachment"
        yield Drift(DriftKind.WIDER, what, initiator)
    for initiator, connector in connectors.items():
        mode = modes.get(initiator)
        if mode is not connector.mode:
            yield _of_mode(initiator, connector.mode, mode)


def _of_mode(initiator: str, wanted: Mode, live: Mode | None) -> Drift:
    if live is Mode.RW:
        what = f"{initiator} may write, and its attachment is {wanted}"
        return Drift(DriftKind.WIDER, what, initiator)
    what = f"{initiator} has {live or 'no access'}, and its attachment is {wanted}"
    return Drift(DriftKind.NARROWER, what, initiator)
