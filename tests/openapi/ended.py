# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which 404s of resources that a run has created are no defect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What exists may lack these: a public type has no access list, so 404 as in Cinder.
_OPTIONAL = frozenset({"/v3/types/{id}/os-volume-type-access"})


class Ended:
    """The ids of resources that requests may have ended.

    A volume ends by its deletion, and by the actions that unmanage it or delete it by
    force. A transfer ends when it is accepted. schemathesis knows of DELETE alone.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def note(self, method: str, status: int, parameters: Mapping[str, Any]) -> None:
        """Note a request by the parameters of its path."""
        if status < 400 and method in ("POST", "DELETE"):
            self._ids.update(map(str, parameters.values()))

    def explains(
        self, path: str, parameters: Mapping[str, Any], has_body: bool
    ) -> bool:
        """Whether a 404 is right: it may also be of what the body names.

        The path is the document's, with its parameters in braces.
        """
        if has_body or path in _OPTIONAL:
            return True
        return not self._ids.isdisjoint(map(str, parameters.values()))
