# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Actions on a snapshot: one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import action_schemas as schemas
from lunshare.agent.api.requests import actions
from lunshare.agent.api.requests.actions import Action


def action(call: Call) -> Answer:
    """POST /snapshots/{id}/action: run the action that the body names"""
    return actions.run(call, ACTIONS)


def _reset(call: Call, fields: Mapping[str, Any]) -> Answer:
    call.services.snapshot_resetter.reset(call.ctx, call.args["id"], fields["status"])
    return Answer(202)


def _force_delete(call: Call, fields: Any) -> Answer:
    call.services.snapshots.delete(call.ctx, call.args["id"], force=True)
    return Answer(202)


def _update_status(call: Call, fields: Mapping[str, Any]) -> Answer:
    call.services.snapshot_resetter.update(
        call.ctx, call.args["id"], fields["status"], fields.get("progress")
    )
    return Answer(202)


def _unmanage(call: Call, fields: Any) -> Answer:
    call.services.managed_snapshots.unmanage(call.ctx, call.args["id"])
    return Answer(202)


_V0 = microversions.MIN

# fmt: off
ACTIONS: Mapping[str, Action] = {
    "os-reset_status": Action(
        _V0, schemas.SNAPSHOT_RESET, _reset,
        "volume_extension:snapshot_admin_actions:reset_status", 202, (400, 404, 409)),
    "os-force_delete": Action(
        _V0, schemas.FORCE_DELETE, _force_delete,
        "volume_extension:snapshot_admin_actions:force_delete", 202, (400, 404)),
    "os-update_snapshot_status": Action(
        _V0, schemas.SNAPSHOT_PROGRESS, _update_status,
        "snapshot_extension:snapshot_actions:update_snapshot_status", 202, (400, 404)),
    "os-unmanage": Action(
        _V0, schemas.UNMANAGE, _unmanage,
        "snapshot_extension:snapshot_unmanage", 202, (400, 404, 500)),
}
# fmt: on
