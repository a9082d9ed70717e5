# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the Block Storage API that this node does not have, in one table.

A client gets a sentence that names it: 404 for a path, 400 for an action or a field.
docs/api-reference.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lunshare.agent.api.faults import Fault
from lunshare.agent.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class MissingFeature:
    """A feature that this node does not have: its name, and what to do instead."""

    what: str
    instead: str

    @property
    def sentence(self) -> str:
        """Return what a client reads."""
        return f"{self.what} are not supported by this node: {self.instead}."


_BACKUPS = MissingFeature("Backups", "copy a clone or a volume of a snapshot on a host")
_IMAGES = MissingFeature(
    "Images (Glance)", "attach the volume to a host and copy the bytes"
)
_GROUPS = MissingFeature("Groups of volumes", "work on each volume")
_CONSISTENCY = MissingFeature("Consistency groups", "work on each volume")
_COMPLETIONS = MissingFeature(
    "Completions by Nova", "its migrations and extensions end by themselves"
)

#: Paths under /v3, as they are without a project. {id} is one part.
PATHS: Mapping[str, MissingFeature] = {
    "/v3/backups": _BACKUPS,
    "/v3/groups": _GROUPS,
    "/v3/group_types": _GROUPS,
    "/v3/group_snapshots": _GROUPS,
    "/v3/consistencygroups": _CONSISTENCY,
    "/v3/cgsnapshots": _CONSISTENCY,
}

#: Actions of volumes.
ACTIONS: Mapping[str, MissingFeature] = {
    "os-volume_upload_image": _IMAGES,
    "os-reimage": _IMAGES,
    "os-migrate_volume_completion": _COMPLETIONS,
    "os-extend_volume_completion": _COMPLETIONS,
}

#: Fields of a new volume.
FIELDS: Mapping[str, MissingFeature] = {
    "backup_id": _BACKUPS,
    "imageRef": _IMAGES,
    "image_id": _IMAGES,
    "consistencygroup_id": _CONSISTENCY,
    "group_id": _GROUPS,
}

#: The resources of these paths. This node has no route of them.
RESOURCES = frozenset(path.split("/")[2] for path in PATHS if "{" not in path)

_PATTERNS = [
    (re.compile(path.replace("{id}", "[^/]+") + "(/.*)?"), what)
    for path, what in PATHS.items()
]


def fault_of(path: str) -> Fault | None:
    """Return the 404 for a path of a missing feature, None for any other path."""
    for pattern, what in _PATTERNS:
        if pattern.fullmatch(path):
            return Fault(404, what.sentence)
    return None


def check_action(name: str) -> None:
    """Check that an action of a volume belongs to no missing feature.

    :raises Invalid: it does.
    """
    if name in ACTIONS:
        raise Invalid(f"{name}: {ACTIONS[name].sentence}")
