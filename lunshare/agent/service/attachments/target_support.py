# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Refuse what a backend's target cannot do, before anything is committed."""

from __future__ import annotations

from lunshare.agent.backends import NodeBackend
from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import Mode


def check_mode(backend: NodeBackend, mode: Mode | None) -> None:
    """Check that the target enforces the mode.

    :raises Conflict: it is ro, and the target does not enforce read-only.
    """
    if mode is Mode.RO and not backend.driver.target.abilities.enforces_read_only:
        raise Conflict(
            f"attachment mode ro: {_target(backend)} does not enforce read-only, and"
            " the host could write; attach it rw, or keep the volume on a backend whose"
            " target does, such as target_driver = lio"
        )


def check_fence(backend: NodeBackend, initiator: str) -> None:
    """Check that the target can end the access of this initiator.

    :raises Conflict: it cannot.
    """
    if not backend.driver.target.abilities.fences:
        raise Conflict(
            f"connector.initiator: the attachment is of {initiator}, and"
            f" {_target(backend)} does not end a host's access; delete the attachment"
            " when that host has closed the volume, and create another one"
        )


def _target(backend: NodeBackend) -> str:
    return f"target_driver {backend.options['target_driver']} of backend {backend.name}"
