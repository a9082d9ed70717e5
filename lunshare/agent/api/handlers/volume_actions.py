# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Actions on a volume: one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import action_schemas as schemas
from lunshare.agent.api.requests import actions, query
from lunshare.agent.api.requests.actions import Action
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.errors import Forbidden, Invalid
from lunshare.agent.model.records import HostConnector, NewBatch
from lunshare.agent.service.attachments import connectors, wanted_state
from lunshare.agent.service.attachments.handover import NewHandover
from lunshare.agent.service.volumes.reset_status import Reset

_RESCAN = "Lunshare-Rescan"
_IN_USE = "volume:extend_attached_volume"


def action(call: Call) -> Answer:
    """POST /volumes/{id}/action: run the action that the body names"""
    return actions.run(call, ACTIONS)


def _extend(call: Call, fields: Mapping[str, Any]) -> Answer:
    """The header of the answer counts the hosts that must rescan."""
    rule, in_use = _IN_USE, call.version >= microversions.EXTEND_IN_USE
    if in_use and not call.allows(rule):
        if call.services.volumes.get(call.ctx, call.args["id"]).attachments:
            raise Forbidden(rule)
        in_use = False
    size = query.gib("os-extend.new_size", fields["new_size"])
    hosts = call.services.extender.extend(
        call.ctx, call.args["id"], size, in_use=in_use
    )
    advice = f"{hosts} attachments; iscsiadm -m session --rescan on each host"
    return Answer(202, headers={_RESCAN: advice} if hosts else {})


def _revert(call: Call, fields: Mapping[str, Any]) -> Answer:
    call.services.reverter.revert(
        call.ctx, call.args["id"], fields["snapshot_id"].lower()
    )
    return Answer(202)


def _unmanage(call: Call, fields: Any) -> Answer:
    call.services.managed_disks.unmanage(call.ctx, call.args["id"])
    return Answer(202)


def _retype(call: Call, fields: Mapping[str, Any]) -> Answer:
    call.services.migrator.retype(
        call.ctx,
        call.args["id"],
        fields["new_type"],
        on_demand=fields.get("migration_policy") == "on-demand",
    )
    return Answer(202)


def _migrate(call: Call, fields: Mapping[str, Any]) -> Answer:
    for name in ("force_host_copy", "lock_volume"):
        query.boolean(f"os-migrate_volume.{name}", str(fields.get(name, False)))
    call.services.migrator.migrate(call.ctx, call.args["id"], fields["host"])
    return Answer(202)


def _reset(call: Call, fields: Mapping[str, Any]) -> Answer:
    call.services.status_resetter.reset(call.ctx, call.args["id"], Reset(**fields))
    return Answer(202)


def _force_detach(call: Call, fields: Mapping[str, Any] | None) -> Answer:
    """The connector is ignored: the row knows who has access."""
    named = (fields or {}).get("attachment_id")
    call.services.status_resetter.force_detach(
        call.ctx, call.args["id"], named and named.lower()
    )
    return Answer(202)


def _force_delete(call: Call, fields: Any) -> Answer:
    call.services.volumes.force_delete(call.ctx, call.args["id"])
    return Answer(202)


def _set_bootable(call: Call, fields: Mapping[str, Any]) -> Answer:
    bootable = query.boolean("os-set_bootable.bootable", str(fields["bootable"]))
    call.services.metadata.set_bootable(call.ctx, call.args["id"], bootable)
    return Answer(200)


def _update_readonly(call: Call, fields: Mapping[str, Any]) -> Answer:
    name = "os-update_readonly_flag.readonly"
    readonly = query.boolean(name, str(fields["readonly"]))
    call.services.metadata.set_readonly(call.ctx, call.args["id"], readonly)
    return Answer(202)


def _set_image_metadata(call: Call, fields: Mapping[str, Any]) -> Answer:
    changed = call.services.metadata.change_image(
        call.ctx, call.args["id"], fields["metadata"]
    )
    return Answer(200, {"metadata": dict(changed)})


def _unset_image_metadata(call: Call, fields: Mapping[str, Any]) -> Answer:
    call.services.metadata.delete_image_item(call.ctx, call.args["id"], fields["key"])
    return Answer(200)


def _show_image_metadata(call: Call, fields: Any) -> Answer:
    volume = call.services.volumes.get(call.ctx, call.args["id"])
    return Answer(200, {"metadata": dict(volume.image_metadata)})


def _reserve(call: Call, fields: Any) -> Answer:
    call.services.legacy.reserve(call.ctx, call.args["id"])
    return Answer(202)


def _unreserve(call: Call, fields: Any) -> Answer:
    call.services.legacy.unreserve(call.ctx, call.args["id"])
    return Answer(202)


def _begin_detaching(call: Call, fields: Any) -> Answer:
    call.services.legacy.begin_detaching(call.ctx, call.args["id"])
    return Answer(202)


def _roll_detaching(call: Call, fields: Any) -> Answer:
    call.services.legacy.roll_detaching(call.ctx, call.args["id"])
    return Answer(202)


def _attach(call: Call, fields: Mapping[str, Any]) -> Answer:
    instance, mode = fields.get("instance_uuid"), fields.get("mode")
    call.services.legacy.attach(
        call.ctx,
        call.args["id"],
        fields["mountpoint"],
        instance=instance and instance.lower(),
        host=fields.get("host_name"),
        mode=wanted_state.parse_mode(mode, "os-attach.mode"),
    )
    return Answer(202)


def _detach(call: Call, fields: Mapping[str, Any] | None) -> Answer:
    named = (fields or {}).get("attachment_id")
    call.services.legacy.detach(call.ctx, call.args["id"], named and named.lower())
    return Answer(202)


def _initialize(call: Call, fields: Mapping[str, Any]) -> Answer:
    row = call.services.legacy.initialize(call.ctx, call.args["id"], _connector(fields))
    return Answer(200, {"connection_info": volume_views.nested_info(row)})


def _terminate(call: Call, fields: Mapping[str, Any]) -> Answer:
    connector = _connector(fields) if fields["connector"] is not None else None
    call.services.legacy.terminate(call.ctx, call.args["id"], connector)
    return Answer(202)


def _hand_over(call: Call, fields: Mapping[str, Any]) -> Answer:
    source = fields.get("from")
    new = NewHandover(
        volume_id=call.args["id"],
        to=fields["to"].lower(),
        source=source and source.lower(),
        force=fields.get("force", False),
    )
    return Answer(202, call.services.handovers.hand_over(call.ctx, new))


def handover(call: Call) -> Answer:
    """GET /volumes/{id}/handover: show the fencing generation and latest handover"""
    return Answer(200, call.services.handovers.show(call.ctx, call.args["id"]))


def _attach_hosts(call: Call, fields: Mapping[str, Any]) -> Answer:
    mode = wanted_state.parse_mode(fields.get("mode"), "lunshare:attach.mode")
    hosts = [_host(*item) for item in enumerate(fields["hosts"])]
    new = NewBatch(call.args["id"], fields["key"], hosts, mode)
    rows = call.services.batches.attach(call.ctx, new)
    return Answer(200, {"attachments": [volume_views.attachment(row) for row in rows]})


def _host(index: int, connector: Mapping[str, Any]) -> HostConnector:
    try:
        return _connector({"connector": connector})
    except Invalid as error:
        error.begin_with(f"lunshare:attach.hosts.{index}")
        raise


def _detach_hosts(call: Call, fields: Mapping[str, Any]) -> Answer:
    ids = [ident.lower() for ident in fields["attachments"]]
    force = fields.get("force", False)
    rows = call.services.batches.detach(call.ctx, call.args["id"], ids, force)
    return Answer(
        200, {"attachments": [volume_views.attachment_brief(row) for row in rows]}
    )


def _connector(fields: Mapping[str, Any]) -> HostConnector:
    connector = fields["connector"]
    return connectors.parse(
        {key: connector[key] for key in connector if connector[key] is not None}
    )


_V0 = microversions.MIN

# fmt: off
ACTIONS: Mapping[str, Action] = {
    "os-attach": Action(
        _V0, schemas.ATTACH, _attach,
        "volume_extension:volume_actions:attach", 202, (400, 404, 409, 500)),
    "os-detach": Action(
        _V0, schemas.DETACH, _detach,
        "volume_extension:volume_actions:detach", 202, (400, 404, 409, 500)),
    "os-reserve": Action(
        _V0, schemas.RESERVE, _reserve,
        "volume_extension:volume_actions:reserve", 202, (400, 404)),
    "os-unreserve": Action(
        _V0, schemas.UNRESERVE, _unreserve,
        "volume_extension:volume_actions:unreserve", 202, (404,)),
    "os-begin_detaching": Action(
        _V0, schemas.BEGIN_DETACHING, _begin_detaching,
        "volume_extension:volume_actions:begin_detaching", 202, (400, 404)),
    "os-roll_detaching": Action(
        _V0, schemas.ROLL_DETACHING, _roll_detaching,
        "volume_extension:volume_actions:roll_detaching", 202, (404,)),
    "os-initialize_connection": Action(
        _V0, schemas.INITIALIZE, _initialize,
        "volume_extension:volume_actions:initialize_connection",
        200, (400, 404, 409, 500)),
    "os-terminate_connection": Action(
        _V0, schemas.TERMINATE, _terminate,
        "volume_extension:volume_actions:terminate_connection",
        202, (400, 404, 409, 500)),
    "os-extend": Action(
        _V0, schemas.EXTEND, _extend,
        "volume:extend", 202, (400, 403, 404, 409, 413, 500)),
    "os-retype": Action(
        _V0, schemas.RETYPE, _retype,
        "volume:retype", 202, (400, 403, 404, 409, 413, 500)),
    "os-migrate_volume": Action(
        _V0, schemas.MIGRATE, _migrate,
        "volume_extension:volume_admin_actions:migrate_volume",
        202, (400, 404, 409, 413, 500)),
    "os-set_bootable": Action(
        _V0, schemas.SET_BOOTABLE, _set_bootable,
        "volume:update", 200, (400, 404)),
    "os-update_readonly_flag": Action(
        _V0, schemas.UPDATE_READONLY, _update_readonly,
        "volume:update_readonly_flag", 202, (400, 404)),
    "os-set_image_metadata": Action(
        _V0, schemas.SET_IMAGE_METADATA, _set_image_metadata,
        "volume_extension:volume_image_metadata:set", 200, (400, 404)),
    "os-unset_image_metadata": Action(
        _V0, schemas.UNSET_IMAGE_METADATA, _unset_image_metadata,
        "volume_extension:volume_image_metadata:remove", 200, (400, 404)),
    "os-show_image_metadata": Action(
        _V0, schemas.SHOW_IMAGE_METADATA, _show_image_metadata,
        "volume:get_volume_metadata", 200, (404,)),
    "os-reset_status": Action(
        _V0, schemas.RESET, _reset,
        "volume_extension:volume_admin_actions:reset_status",
        202, (400, 404, 409, 500)),
    "os-force_delete": Action(
        _V0, schemas.FORCE_DELETE, _force_delete,
        "volume_extension:volume_admin_actions:force_delete", 202, (400, 404)),
    "os-force_detach": Action(
        _V0, schemas.FORCE_DETACH, _force_detach,
        "volume_extension:volume_admin_actions:force_detach",
        202, (400, 404, 409, 503)),
    "os-unmanage": Action(
        _V0, schemas.UNMANAGE, _unmanage,
        "volume_extension:volume_unmanage", 202, (400, 404, 409, 500)),
    "lunshare:handover": Action(
        microversions.ATTACHMENTS, schemas.HANDOVER, _hand_over,
        "lunshare:handover", 202, (400, 404, 409, 500)),
    "lunshare:attach": Action(
        microversions.ATTACHMENT_MODE, schemas.ATTACH_HOSTS, _attach_hosts,
        "volume:attachment_create", 200, (400, 403, 404, 409, 413, 500)),
    "lunshare:detach": Action(
        microversions.ATTACHMENT_MODE, schemas.DETACH_HOSTS, _detach_hosts,
        "volume:attachment_delete", 200, (400, 404, 409, 413, 500)),
    "revert": Action(
        microversions.REVERT, schemas.REVERT, _revert,
        "volume:revert_to_snapshot", 202, (400, 404, 409, 500, 503)),
}
# fmt: on
