# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Actions on a volume: one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.agent.api import faults, microversions, query, schemas
from lunshare.agent.api.exchange import Answer, Call, Version
from lunshare.agent.api.forms import Form
from lunshare.agent.errors import Invalid

_RESCAN = "Lunshare-Rescan"


@dataclass(frozen=True, slots=True)
class Action:
    """One action: below microversion ``since`` it does not exist (404)."""

    since: Version
    form: Form
    run: Callable[[Call, Any], Answer]


def action(call: Call) -> Answer:
    """POST /volumes/{id}/action: run the action that the body names"""
    body = call.body()
    schemas.ACTION.check(body, call.version)
    (name,) = body
    found = ACTIONS.get(name)
    if found is None:
        raise Invalid(f"The body: give one of {', '.join(ACTIONS)} as its key.")
    if call.version < found.since:
        raise faults.no_such_path()
    found.form.check(body, call.version)
    return found.run(call, body[name])


def _extend(call: Call, asked: Mapping[str, Any]) -> Answer:
    """The header of the answer counts the hosts that must rescan."""
    hosts = call.services.extender.extend(
        call.ctx,
        call.args["id"],
        query.gib("os-extend.new_size", asked["new_size"]),
        in_use=call.version >= microversions.EXTEND_IN_USE,
    )
    advice = f"{hosts} attachments; iscsiadm -m session --rescan on each host"
    return Answer(202, headers={_RESCAN: advice} if hosts else {})


def _revert(call: Call, asked: Mapping[str, Any]) -> Answer:
    call.services.reverter.revert(
        call.ctx, call.args["id"], asked["snapshot_id"].lower()
    )
    return Answer(202)


def _unmanage(call: Call, asked: Any) -> Answer:
    call.services.foreign_disks.unmanage(call.ctx, call.args["id"])
    return Answer(202)


def _retype(call: Call, asked: Mapping[str, Any]) -> Answer:
    if not call.allows("volume:multiattach"):
        kind = call.services.types.resolve(asked["new_type"])
        if kind is not None and kind.multiattach:
            raise faults.forbidden("volume:multiattach")
    call.services.migrator.retype(
        call.ctx,
        call.args["id"],
        asked["new_type"],
        on_demand=asked.get("migration_policy") == "on-demand",
    )
    return Answer(202)


def _migrate(call: Call, asked: Mapping[str, Any]) -> Answer:
    for name in ("force_host_copy", "lock_volume"):
        query.boolean(f"os-migrate_volume.{name}", str(asked.get(name, False)))
    call.services.migrator.migrate(call.ctx, call.args["id"], asked["host"])
    return Answer(202)


def _reset(call: Call, asked: Any) -> Answer:
    call.services.status_resetter.reset(call.ctx, call.args["id"])
    return Answer(202)


def _force_detach(call: Call, asked: Mapping[str, Any]) -> Answer:
    attachment = asked["attachment_id"].lower()
    call.services.status_resetter.force_detach(call.ctx, call.args["id"], attachment)
    return Answer(202)


ACTIONS: Mapping[str, Action] = {
    "os-extend": Action(microversions.MIN, schemas.EXTEND, _extend),
    "os-retype": Action(microversions.MIN, schemas.RETYPE, _retype),
    "os-migrate_volume": Action(microversions.MIN, schemas.MIGRATE, _migrate),
    "os-reset_status": Action(microversions.MIN, schemas.RESET, _reset),
    "os-force_detach": Action(microversions.MIN, schemas.FORCE_DETACH, _force_detach),
    "os-unmanage": Action(microversions.MIN, schemas.UNMANAGE, _unmanage),
    "revert": Action(microversions.REVERT, schemas.REVERT, _revert),
}
