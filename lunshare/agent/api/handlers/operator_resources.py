# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What an operator asks of this node: hosts, drift, orphans, wipes. Cinder has none.

A host has volumes, each in a mode and with a session. An orphan has a name of lunshare
and no row. A wipe is of a deleted volume.
"""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import paging, query, schemas
from lunshare.agent.api.views import operator_views, volume_views
from lunshare.agent.model.errors import NotFound
from lunshare.agent.model.operator_records import RecoverRequest

_KINDS = ("export", "disk", "snapshot")


def hosts(call: Call) -> Answer:
    """GET /lunshare/hosts: list the hosts of all volumes, or of volume_id"""
    parameters = query.only(call.query, "volume_id", "limit", "marker")
    limit = paging.limit(parameters, call.settings.max_limit)
    rows = call.services.hosts.list(
        call.ctx, parameters.get("volume_id"), limit, parameters.get("marker")
    )
    body = {"hosts": [operator_views.host(row) for row in rows]}
    return Answer(200, body | paging.more(call, "hosts", rows, "marker"))


def verify(call: Call) -> Answer:
    """POST /lunshare/verify: compare the live targets with the database

    Of all volumes with hosts, or of one. With ``repair`` what differs is put right.
    """
    fields = schemas.VERIFY.read(call)["verify"]
    repair = fields.get("repair", False)
    targets = call.services.verifier.verify(call.ctx, fields.get("volume_id"), repair)
    return Answer(200, {"verify": operator_views.verification(targets)})


def orphans(call: Call) -> Answer:
    """GET /lunshare/orphans: list exports, disks and snapshots without a row"""
    rows = call.services.orphans.list(call.ctx)
    return Answer(200, {"orphans": [operator_views.orphan(row) for row in rows]})


def recover(call: Call) -> Answer:
    """POST /lunshare/orphans: recover a volume from its disk"""
    fields = schemas.RECOVER.read(call)["volume"]
    new = RecoverRequest(
        fields["id"], fields.get("name"), fields.get("volume_type") or None
    )
    volume = call.services.orphans.recover(call.ctx, new)
    context = volume_views.ViewContext(
        call.version, call.root, call.project, call.services.node.host_of
    )
    return Answer(202, {"volume": volume_views.stored_volume(volume, context)})


def delete_orphan(call: Call) -> Answer:
    """DELETE /lunshare/orphans/{kind}/{id}: delete one orphan"""
    kind, ident = call.args["kind"], call.args["id"]
    if kind not in _KINDS:
        raise NotFound("kind of orphan", kind)
    call.services.orphans.delete(call.ctx, kind, ident)
    return Answer(204)


def wipes(call: Call) -> Answer:
    """GET /lunshare/wipes: list what is left to wipe"""
    rows = call.services.wiper.list(call.ctx)
    return Answer(200, {"wipes": [volume_views.wipe(row) for row in rows]})
