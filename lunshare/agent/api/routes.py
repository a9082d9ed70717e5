# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The complete API as one table. ``python -m tools.routes_table`` prints it.

A path under /v3 has no project here. Clients may send one after /v3; it is removed
before the route is searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lunshare.agent.api import microversions, missing_features
from lunshare.agent.api.exchange import Handler, Version
from lunshare.agent.api.handlers import (
    attachments,
    catalog,
    fences,
    health,
    manageable,
    messages,
    operator_resources,
    qos,
    quotas,
    services,
    snapshot_actions,
    snapshot_metadata,
    snapshots,
    transfers,
    type_access,
    type_encryption,
    types,
    volume_actions,
    volume_metadata,
    volumes,
)
from lunshare.agent.api.requests.actions import Action

#: The rule of an action that no table names: the handler says which actions there are.
UNDECLARED = "lunshare:undeclared"

#: Statuses of the errors of any path, before its handler.
REFUSED = frozenset({400, 403, 404, 405, 415})
#: Further ones of a path that needs an identity.
REFUSED_IDENTITY = frozenset({401, 406, 503})


@dataclass(frozen=True, slots=True)
class Route:
    """One route; below microversion ``since`` it does not exist (404).

    ``rule`` is its rule of access in lunshare.agent.api.policies, empty for a route that
    needs no identity. ``rules`` are those of its actions, by their names. ``answers``
    are the statuses of its successes, ``refused`` those of the errors that its handler
    raises; both of an action are in its own table.
    """

    method: str
    path: str
    since: Version
    handler: Handler
    rule: str
    answers: tuple[int, ...]
    refused: tuple[int, ...]
    rules: Mapping[str, str] = field(default_factory=dict, hash=False)


def _rules(actions: Mapping[str, Action]) -> dict[str, str]:
    return {name: action.rule for name, action in actions.items()}


_ACCESS = {
    name: f"volume_extension:volume_type_access:{name}"
    for name in ("addProjectAccess", "removeProjectAccess")
}
_V0 = microversions.MIN
_MESSAGES = microversions.MESSAGES
_SUMMARY = microversions.SUMMARY
_ATTACH = microversions.ATTACHMENTS
_MANAGE = microversions.MANAGEABLE
_ENCRYPTION = "/v3/types/{id}/encryption/{key}"
_CLUSTERS = microversions.CLUSTERS
_CLEANUP = microversions.CLEANUP
_FAILOVER = microversions.FAILOVER
_LOGS = microversions.LOG_LEVELS
_FILTERS = microversions.RESOURCE_FILTERS
_DEFAULTS = microversions.DEFAULT_TYPES
_COMPLETE = microversions.ATTACHMENT_COMPLETE
_TRANSFER = microversions.TRANSFER_SNAPSHOTS

# One route in one line.
# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET", "/", _V0, catalog.choices, "", (300,), ()),
    Route("GET", "/v3", _V0, catalog.version, "", (200,), ()),
    Route("GET", "/openapi.json", _V0, catalog.document, "", (200,), ()),
    Route("GET", "/healthz", _V0, health.alive, "", (200,), ()),
    Route("GET", "/healthcheck", _V0, health.alive, "", (200,), ()),
    Route("GET", "/readyz", _V0, health.ready, "", (200, 503), ()),
    Route("POST", "/v3/volumes", _V0, volumes.create, "volume:create", (202,), (400, 403, 404, 409, 413, 500)),
    Route("GET", "/v3/volumes", _V0, volumes.index, "volume:get_all", (200,), (400, 404)),
    Route("GET", "/v3/volumes/detail", _V0, volumes.detail, "volume:get_all", (200,), (400, 404)),
    Route("GET", "/v3/volumes/summary", _SUMMARY, volumes.summary, "volume:get_all", (200,), (400,)),
    Route("GET", "/v3/volumes/{id}", _V0, volumes.show, "volume:get", (200,), (404,)),
    Route("PUT", "/v3/volumes/{id}", _V0, volumes.update, "volume:update", (200,), (400, 404, 409, 413)),
    Route("DELETE", "/v3/volumes/{id}", _V0, volumes.delete, "volume:delete", (202,), (400, 403, 404, 409)),
    Route("POST", "/v3/volumes/{id}/action", _V0, volume_actions.action, UNDECLARED, (), (400, 404, 413), _rules(volume_actions.ACTIONS)),
    Route("GET", "/v3/volumes/{id}/handover", _ATTACH, volume_actions.handover, "volume:get", (200,), (404,)),
    Route("GET", "/v3/volumes/{id}/encryption", _V0, volume_metadata.encryption, "volume_extension:volume_encryption_metadata", (200,), (404,)),
    Route("GET", "/v3/volumes/{id}/metadata", _V0, volume_metadata.index, "volume:get_volume_metadata", (200,), (404,)),
    Route("POST", "/v3/volumes/{id}/metadata", _V0, volume_metadata.merge, "volume:create_volume_metadata", (200,), (400, 404, 409, 412, 413)),
    Route("PUT", "/v3/volumes/{id}/metadata", _V0, volume_metadata.replace, "volume:update_volume_metadata", (200,), (400, 404, 409, 412, 413)),
    Route("GET", "/v3/volumes/{id}/metadata/{key}", _V0, volume_metadata.show, "volume:get_volume_metadata", (200,), (404,)),
    Route("PUT", "/v3/volumes/{id}/metadata/{key}", _V0, volume_metadata.update, "volume:update_volume_metadata", (200,), (400, 404, 409, 412, 413)),
    Route("DELETE", "/v3/volumes/{id}/metadata/{key}", _V0, volume_metadata.delete, "volume:delete_volume_metadata", (200,), (400, 404, 409, 412)),
    Route("POST", "/v3/os-volume-transfer", _V0, transfers.create, "volume:create_transfer", (202,), (400, 404, 413)),
    Route("GET", "/v3/os-volume-transfer", _V0, transfers.index, "volume:get_all_transfers", (200,), (400,)),
    Route("GET", "/v3/os-volume-transfer/detail", _V0, transfers.detail, "volume:get_all_transfers", (200,), (400,)),
    Route("GET", "/v3/os-volume-transfer/{id}", _V0, transfers.show, "volume:get_transfer", (200,), (404,)),
    Route("DELETE", "/v3/os-volume-transfer/{id}", _V0, transfers.delete, "volume:delete_transfer", (202,), (404,)),
    Route("POST", "/v3/os-volume-transfer/{id}/accept", _V0, transfers.accept, "volume:accept_transfer", (202,), (400, 404, 413)),
    Route("POST", "/v3/volume-transfers", _TRANSFER, transfers.create, "volume:create_transfer", (202,), (400, 404, 413)),
    Route("GET", "/v3/volume-transfers", _TRANSFER, transfers.index, "volume:get_all_transfers", (200,), (400,)),
    Route("GET", "/v3/volume-transfers/detail", _TRANSFER, transfers.detail, "volume:get_all_transfers", (200,), (400,)),
    Route("GET", "/v3/volume-transfers/{id}", _TRANSFER, transfers.show, "volume:get_transfer", (200,), (404,)),
    Route("DELETE", "/v3/volume-transfers/{id}", _TRANSFER, transfers.delete, "volume:delete_transfer", (202,), (404,)),
    Route("POST", "/v3/volume-transfers/{id}/accept", _TRANSFER, transfers.accept, "volume:accept_transfer", (202,), (400, 404, 413)),
    Route("POST", "/v3/snapshots", _V0, snapshots.create, "volume:create_snapshot", (202,), (400, 404, 413, 500)),
    Route("GET", "/v3/snapshots", _V0, snapshots.index, "volume:get_all_snapshots", (200,), (400, 404)),
    Route("GET", "/v3/snapshots/detail", _V0, snapshots.detail, "volume:get_all_snapshots", (200,), (400, 404)),
    Route("GET", "/v3/snapshots/{id}", _V0, snapshots.show, "volume:get_snapshot", (200,), (404,)),
    Route("PUT", "/v3/snapshots/{id}", _V0, snapshots.update, "volume:update_snapshot", (200,), (400, 404, 413)),
    Route("DELETE", "/v3/snapshots/{id}", _V0, snapshots.delete, "volume:delete_snapshot", (202,), (400, 404)),
    Route("POST", "/v3/snapshots/{id}/action", _V0, snapshot_actions.action, UNDECLARED, (), (400, 404, 413), _rules(snapshot_actions.ACTIONS)),
    Route("GET", "/v3/snapshots/{id}/metadata", _V0, snapshot_metadata.index, "volume:get_snapshot_metadata", (200,), (404,)),
    Route("POST", "/v3/snapshots/{id}/metadata", _V0, snapshot_metadata.merge, "volume:update_snapshot_metadata", (200,), (400, 404, 413)),
    Route("PUT", "/v3/snapshots/{id}/metadata", _V0, snapshot_metadata.replace, "volume:update_snapshot_metadata", (200,), (400, 404, 413)),
    Route("GET", "/v3/snapshots/{id}/metadata/{key}", _V0, snapshot_metadata.show, "volume:get_snapshot_metadata", (200,), (404,)),
    Route("PUT", "/v3/snapshots/{id}/metadata/{key}", _V0, snapshot_metadata.update, "volume:update_snapshot_metadata", (200,), (400, 404, 413)),
    Route("DELETE", "/v3/snapshots/{id}/metadata/{key}", _V0, snapshot_metadata.delete, "volume:delete_snapshot_metadata", (200,), (404,)),
    Route("POST", "/v3/manageable_snapshots", _MANAGE, manageable.manage_snapshot, "snapshot_extension:snapshot_manage", (202,), (400, 404, 409, 413, 500)),
    Route("GET", "/v3/manageable_snapshots", _MANAGE, manageable.snapshots, "snapshot_extension:list_manageable", (200,), (400, 404, 500)),
    Route("GET", "/v3/manageable_snapshots/detail", _MANAGE, manageable.snapshots_detail, "snapshot_extension:list_manageable", (200,), (400, 404, 500)),
    Route("POST", "/v3/os-snapshot-manage", _V0, manageable.manage_snapshot, "snapshot_extension:snapshot_manage", (202,), (400, 404, 409, 413, 500)),
    Route("GET", "/v3/os-snapshot-manage", _V0, manageable.snapshots, "snapshot_extension:list_manageable", (200,), (400, 404, 500)),
    Route("GET", "/v3/os-snapshot-manage/detail", _V0, manageable.snapshots_detail, "snapshot_extension:list_manageable", (200,), (400, 404, 500)),
    Route("POST", "/v3/manageable_volumes", _MANAGE, manageable.manage_volume, "volume_extension:volume_manage", (202,), (400, 404, 409, 413, 500)),
    Route("GET", "/v3/manageable_volumes", _MANAGE, manageable.volumes, "volume_extension:list_manageable", (200,), (400, 404, 500)),
    Route("GET", "/v3/manageable_volumes/detail", _MANAGE, manageable.volumes_detail, "volume_extension:list_manageable", (200,), (400, 404, 500)),
    Route("POST", "/v3/os-volume-manage", _V0, manageable.manage_volume, "volume_extension:volume_manage", (202,), (400, 404, 409, 413, 500)),
    Route("GET", "/v3/os-volume-manage", _V0, manageable.volumes, "volume_extension:list_manageable", (200,), (400, 404, 500)),
    Route("GET", "/v3/os-volume-manage/detail", _V0, manageable.volumes_detail, "volume_extension:list_manageable", (200,), (400, 404, 500)),
    Route("POST", "/v3/attachments", _ATTACH, attachments.create, "volume:attachment_create", (200,), (400, 403, 404, 409, 413, 500)),
    Route("GET", "/v3/attachments", _ATTACH, attachments.index, "lunshare:attachment_get_all", (200,), (400, 404)),
    Route("GET", "/v3/attachments/detail", _ATTACH, attachments.detail, "lunshare:attachment_get_all", (200,), (400, 404)),
    Route("GET", "/v3/attachments/{id}", _ATTACH, attachments.show, "lunshare:attachment_get", (200,), (404,)),
    Route("PUT", "/v3/attachments/{id}", _ATTACH, attachments.update, "volume:attachment_update", (200, 202), (400, 404, 409, 413, 500)),
    Route("PUT", "/v3/attachments/{id}/lease", microversions.ATTACHMENT_MODE, attachments.renew, "volume:attachment_update", (200,), (400, 404, 409)),
    Route("DELETE", "/v3/attachments/{id}", _ATTACH, attachments.delete, "volume:attachment_delete", (200,), (400, 404, 409, 500)),
    Route("POST", "/v3/attachments/{id}/action", _COMPLETE, attachments.action, UNDECLARED, (204,), (400, 404, 409, 413), {"os-complete": "volume:attachment_complete"}),
    Route("POST", "/v3/types", _V0, types.create, "volume_extension:type_create", (200,), (400, 409, 413)),
    Route("GET", "/v3/types", _V0, types.index, "volume_extension:type_get_all", (200,), (400, 404)),
    Route("GET", "/v3/types/default", _V0, types.default, "volume_extension:type_get", (200,), (404,)),
    Route("GET", "/v3/types/{id}", _V0, types.show, "volume_extension:type_get", (200,), (404,)),
    Route("PUT", "/v3/types/{id}", _V0, types.update, "volume_extension:type_update", (200,), (400, 404, 409, 413)),
    Route("DELETE", "/v3/types/{id}", _V0, types.delete, "volume_extension:type_delete", (202,), (400, 404)),
    Route("GET", "/v3/types/{id}/extra_specs", _V0, types.specs, "volume_extension:types_extra_specs:index", (200,), (404,)),
    Route("POST", "/v3/types/{id}/extra_specs", _V0, types.set_specs, "volume_extension:types_extra_specs:create", (200,), (400, 404, 413)),
    Route("GET", "/v3/types/{id}/extra_specs/{key}", _V0, types.spec, "volume_extension:types_extra_specs:show", (200,), (404,)),
    Route("PUT", "/v3/types/{id}/extra_specs/{key}", _V0, types.set_spec, "volume_extension:types_extra_specs:update", (200,), (400, 404, 413)),
    Route("DELETE", "/v3/types/{id}/extra_specs/{key}", _V0, types.delete_spec, "volume_extension:types_extra_specs:delete", (202,), (400, 404)),
    Route("GET", "/v3/types/{id}/os-volume-type-access", _V0, type_access.index, "volume_extension:volume_type_access:get_all_for_type", (200,), (404,)),
    Route("GET", "/v3/types/{id}/encryption", _V0, type_encryption.index, "volume_extension:volume_type_encryption:get", (200,), (404,)),
    Route("POST", "/v3/types/{id}/encryption", _V0, type_encryption.create, "volume_extension:volume_type_encryption:create", (200,), (400, 404, 413)),
    Route("GET", "/v3/types/{id}/encryption/{key}", _V0, type_encryption.show, "volume_extension:volume_type_encryption:get", (200,), (404,)),
    Route("PUT", "/v3/types/{id}/encryption/{key}", _V0, type_encryption.update, "volume_extension:volume_type_encryption:update", (200,), (400, 404, 413)),
    Route("DELETE", "/v3/types/{id}/encryption/{key}", _V0, type_encryption.delete, "volume_extension:volume_type_encryption:delete", (202,), (400, 404)),
    Route("POST", "/v3/types/{id}/action", _V0, type_access.action, UNDECLARED, (202,), (400, 404, 409, 413), _ACCESS),
    Route("GET", "/v3/default-types", _DEFAULTS, type_access.defaults, "volume_extension:default_get_all", (200,), ()),
    Route("GET", "/v3/default-types/{id}", _DEFAULTS, type_access.default, "volume_extension:default_get", (200,), (404,)),
    Route("PUT", "/v3/default-types/{id}", _DEFAULTS, type_access.set_default, "volume_extension:default_set_or_update", (200,), (400, 413)),
    Route("DELETE", "/v3/default-types/{id}", _DEFAULTS, type_access.unset_default, "volume_extension:default_unset", (204,), ()),
    Route("GET", "/v3/os-services", _V0, services.index, "volume_extension:services:index", (200,), ()),
    Route("PUT", "/v3/os-services/enable", _V0, services.enable, "volume_extension:services:update", (200,), (400, 404, 413)),
    Route("PUT", "/v3/os-services/disable", _V0, services.disable, "volume_extension:services:update", (200,), (400, 404, 413)),
    Route("PUT", "/v3/os-services/disable-log-reason", _V0, services.disable_with_reason, "volume_extension:services:update", (200,), (400, 404, 413)),
    Route("PUT", "/v3/os-services/freeze", _V0, services.freeze, "volume:freeze_host", (200,), (400, 413)),
    Route("PUT", "/v3/os-services/thaw", _V0, services.thaw, "volume:thaw_host", (200,), (400, 413)),
    Route("PUT", "/v3/os-services/failover_host", _V0, services.fail_over, "volume:failover_host", (), (400, 413)),
    Route("PUT", "/v3/os-services/failover", _FAILOVER, services.fail_over, "volume:failover_host", (), (400, 413)),
    Route("PUT", "/v3/os-services/set-log", _LOGS, services.set_log, "volume_extension:services:update", (202,), (400, 413)),
    Route("PUT", "/v3/os-services/get-log", _LOGS, services.get_log, "volume_extension:services:update", (200,), (400, 413)),
    Route("GET", "/v3/os-availability-zone", _V0, catalog.zones, "lunshare:catalog", (200,), ()),
    Route("GET", "/v3/os-hosts", _V0, catalog.hosts, "volume_extension:hosts", (200,), ()),
    Route("GET", "/v3/os-hosts/{id}", _V0, catalog.host, "volume_extension:hosts", (200,), (404,)),
    Route("GET", "/v3/extensions", _V0, catalog.extensions, "lunshare:catalog", (200,), ()),
    Route("GET", "/v3/extensions/{id}", _V0, catalog.extension, "lunshare:catalog", (200,), (404,)),
    Route("GET", "/v3/resource_filters", _FILTERS, catalog.filters, "lunshare:catalog", (200,), ()),
    Route("GET", "/v3/clusters", _CLUSTERS, catalog.clusters, "clusters:get_all", (200,), ()),
    Route("GET", "/v3/clusters/detail", _CLUSTERS, catalog.clusters, "clusters:get_all", (200,), ()),
    Route("GET", "/v3/clusters/{id}", _CLUSTERS, catalog.cluster, "clusters:get", (), (404,)),
    Route("PUT", "/v3/clusters/enable", _CLUSTERS, catalog.enable_cluster, "clusters:update", (), (400, 404, 413)),
    Route("PUT", "/v3/clusters/disable", _CLUSTERS, catalog.disable_cluster, "clusters:update", (), (400, 404, 413)),
    Route("POST", "/v3/workers/cleanup", _CLEANUP, catalog.clean_up, "workers:cleanup", (202,), (400, 413)),
    Route("GET", "/v3/scheduler-stats/get_pools", _V0, services.pools, "scheduler_extension:scheduler_stats:get_pools", (200,), (400, 404)),
    Route("POST", "/v3/scheduler-stats/explain", _V0, services.explain, "lunshare:operate", (200,), (400, 404, 413)),
    Route("GET", "/v3/capabilities/{host}", _V0, services.capabilities, "volume_extension:capabilities", (200,), (404,)),
    Route("POST", "/v3/qos-specs", _V0, qos.create, "volume_extension:qos_specs_manage:create", (200,), (400, 409, 413)),
    Route("GET", "/v3/qos-specs", _V0, qos.index, "volume_extension:qos_specs_manage:get_all", (200,), (400, 404)),
    Route("GET", "/v3/qos-specs/{id}", _V0, qos.show, "volume_extension:qos_specs_manage:get", (200,), (404,)),
    Route("PUT", "/v3/qos-specs/{id}", _V0, qos.update, "volume_extension:qos_specs_manage:update", (200,), (400, 404, 413)),
    Route("DELETE", "/v3/qos-specs/{id}", _V0, qos.delete, "volume_extension:qos_specs_manage:delete", (202,), (400, 404)),
    Route("PUT", "/v3/qos-specs/{id}/delete_keys", _V0, qos.delete_keys, "volume_extension:qos_specs_manage:delete", (202,), (400, 404, 413)),
    Route("GET", "/v3/qos-specs/{id}/associations", _V0, qos.associations, "volume_extension:qos_specs_manage:get_all", (200,), (404,)),
    Route("GET", "/v3/qos-specs/{id}/associate", _V0, qos.associate, "volume_extension:qos_specs_manage:update", (202,), (400, 404)),
    Route("GET", "/v3/qos-specs/{id}/disassociate", _V0, qos.disassociate, "volume_extension:qos_specs_manage:update", (202,), (400, 404)),
    Route("GET", "/v3/qos-specs/{id}/disassociate_all", _V0, qos.disassociate_all, "volume_extension:qos_specs_manage:update", (202,), (404,)),
    Route("GET", "/v3/limits", _V0, quotas.limits, "lunshare:catalog", (200,), ()),
    Route("GET", "/v3/os-quota-sets/{id}", _V0, quotas.show, "volume_extension:quotas:show", (200,), (400, 403)),
    Route("GET", "/v3/os-quota-sets/{id}/defaults", _V0, quotas.defaults, "volume_extension:quotas:show", (200,), ()),
    Route("PUT", "/v3/os-quota-sets/{id}", _V0, quotas.update, "volume_extension:quotas:update", (200,), (400, 413)),
    Route("DELETE", "/v3/os-quota-sets/{id}", _V0, quotas.delete, "volume_extension:quotas:delete", (200,), ()),
    Route("GET", "/v3/os-quota-class-sets/{id}", _V0, quotas.show_class, "volume_extension:quota_classes:get", (200,), ()),
    Route("PUT", "/v3/os-quota-class-sets/{id}", _V0, quotas.update_class, "volume_extension:quota_classes:update", (200,), (400, 413)),
    Route("GET", "/v3/messages", _MESSAGES, messages.index, "message:get_all", (200,), (400, 404)),
    Route("GET", "/v3/messages/{id}", _MESSAGES, messages.show, "message:get", (200,), (404,)),
    Route("DELETE", "/v3/messages/{id}", _MESSAGES, messages.delete, "message:delete", (204,), (404,)),
    Route("GET", "/v3/lunshare/wipes", _V0, operator_resources.wipes, "lunshare:operate", (200,), (500, 503)),
    Route("GET", "/v3/lunshare/hosts", _V0, operator_resources.hosts, "lunshare:operate", (200,), (400, 404)),
    Route("POST", "/v3/lunshare/verify", _V0, operator_resources.verify, "lunshare:operate", (200,), (400, 404, 413)),
    Route("GET", "/v3/lunshare/fences", _V0, fences.index, "lunshare:fence", (200,), (400,)),
    Route("GET", "/v3/lunshare/fences/{host}", _V0, fences.show, "lunshare:fence", (200,), (400, 404)),
    Route("PUT", "/v3/lunshare/fences/{host}", _V0, fences.fence, "lunshare:fence", (200, 202), (400, 413)),
    Route("DELETE", "/v3/lunshare/fences/{host}", _V0, fences.unfence, "lunshare:fence", (200, 202), (400,)),
    Route("GET", "/v3/lunshare/orphans", _V0, operator_resources.orphans, "lunshare:operate", (200,), (500,)),
    Route("POST", "/v3/lunshare/orphans", _V0, operator_resources.recover, "lunshare:operate", (202,), (400, 404, 409, 413, 500)),
    Route("DELETE", "/v3/lunshare/orphans/{kind}/{id}", _V0, operator_resources.delete_orphan, "lunshare:operate", (204,), (404, 409, 500)),
    Route("GET", "/v3/lunshare/health", _V0, health.full, "lunshare:operate", (200,), ()),
    Route("GET", "/v3/lunshare/metrics", _V0, health.metrics, "lunshare:metrics", (200,), ()),
)
# fmt: on

#: Paths of health checks. Balancers send them with any Host header.
HEALTH = frozenset({"/healthz", "/healthcheck", "/readyz"})
#: Paths that need no identity. Every other one does.
PUBLIC = frozenset(route.path for route in ROUTES if not route.rule)

#: Where Prometheus looks by default, and the route that it is another path of.
METRICS = ("/metrics", "/v3/lunshare/metrics")

_PREFIX = "/v3/"
_RESOURCES = missing_features.RESOURCES | {
    route.path.split("/")[2] for route in ROUTES if route.path.startswith(_PREFIX)
}

#: Paths whose children are items. Such a path with a "/" at its end names an item
#: without an id.
COLLECTIONS = frozenset(
    route.path.rpartition("/")[0] for route in ROUTES if route.path.endswith("}")
)


def by_path() -> dict[str, dict[str, Route]]:
    """Return the table by path, then by method.

    HEAD is handled as GET, if that changes nothing (202): HEAD is safe (RFC 9110, 9.2).
    """
    table: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        table.setdefault(route.path, {})[route.method] = route
        if route.method == "GET" and 202 not in route.answers:
            table[route.path]["HEAD"] = route
    return table


def without_project(path: str) -> tuple[str, str | None]:
    """Split a path under /v3/ into the path of the table and the project, or None.

    The name of a resource in the table is never a project.
    """
    first, _, remainder = path.removeprefix(_PREFIX).partition("/")
    if first in _RESOURCES:
        return path, None
    return _PREFIX + remainder, first
