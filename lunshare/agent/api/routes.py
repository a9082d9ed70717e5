# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The complete API as one table. ``python -m lunshare.agent.api.routes`` prints it.

A path under /v3 has no project here. Clients may send one after /v3; it is removed
before the route is searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from lunshare.agent.api import microversions, missing_features
from lunshare.agent.api.exchange import Handler, Version
from lunshare.agent.api.handlers import (
    attachments,
    catalog_pages,
    discovery,
    health,
    hosts,
    manageable,
    manageable_snapshots,
    messages,
    orphans,
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
    wipes,
)


@dataclass(frozen=True, slots=True)
class Route:
    """One route; below microversion ``since`` it does not exist (404)."""

    method: str
    path: str
    since: Version
    handler: Handler


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

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", _V0, discovery.choices),
    Route("GET", "/v3", _V0, discovery.version),
    Route("GET", "/openapi.json", _V0, discovery.document),
    Route("GET", "/healthz", _V0, health.alive),
    Route("GET", "/healthcheck", _V0, health.alive),
    Route("GET", "/readyz", _V0, health.ready),
    Route("POST", "/v3/volumes", _V0, volumes.create),
    Route("GET", "/v3/volumes", _V0, volumes.index),
    Route("GET", "/v3/volumes/detail", _V0, volumes.detail),
    Route("GET", "/v3/volumes/summary", _SUMMARY, volumes.summary),
    Route("GET", "/v3/volumes/{id}", _V0, volumes.show),
    Route("PUT", "/v3/volumes/{id}", _V0, volumes.update),
    Route("DELETE", "/v3/volumes/{id}", _V0, volumes.delete),
    Route("POST", "/v3/volumes/{id}/action", _V0, volume_actions.action),
    Route("GET", "/v3/volumes/{id}/encryption", _V0, volume_metadata.encryption),
    Route("GET", "/v3/volumes/{id}/metadata", _V0, volume_metadata.index),
    Route("POST", "/v3/volumes/{id}/metadata", _V0, volume_metadata.merge),
    Route("PUT", "/v3/volumes/{id}/metadata", _V0, volume_metadata.replace),
    Route("GET", "/v3/volumes/{id}/metadata/{key}", _V0, volume_metadata.show),
    Route("PUT", "/v3/volumes/{id}/metadata/{key}", _V0, volume_metadata.update),
    Route("DELETE", "/v3/volumes/{id}/metadata/{key}", _V0, volume_metadata.delete),
    Route("POST", "/v3/os-volume-transfer", _V0, transfers.create),
    Route("GET", "/v3/os-volume-transfer", _V0, transfers.index),
    Route("GET", "/v3/os-volume-transfer/detail", _V0, transfers.detail),
    Route("GET", "/v3/os-volume-transfer/{id}", _V0, transfers.show),
    Route("DELETE", "/v3/os-volume-transfer/{id}", _V0, transfers.delete),
    Route("POST", "/v3/os-volume-transfer/{id}/accept", _V0, transfers.accept),
    Route("POST", "/v3/volume-transfers", _TRANSFER, transfers.create),
    Route("GET", "/v3/volume-transfers", _TRANSFER, transfers.index),
    Route("GET", "/v3/volume-transfers/detail", _TRANSFER, transfers.detail),
    Route("GET", "/v3/volume-transfers/{id}", _TRANSFER, transfers.show),
    Route("DELETE", "/v3/volume-transfers/{id}", _TRANSFER, transfers.delete),
    Route("POST", "/v3/volume-transfers/{id}/accept", _TRANSFER, transfers.accept),
    Route("POST", "/v3/snapshots", _V0, snapshots.create),
    Route("GET", "/v3/snapshots", _V0, snapshots.index),
    Route("GET", "/v3/snapshots/detail", _V0, snapshots.detail),
    Route("GET", "/v3/snapshots/{id}", _V0, snapshots.show),
    Route("PUT", "/v3/snapshots/{id}", _V0, snapshots.update),
    Route("DELETE", "/v3/snapshots/{id}", _V0, snapshots.delete),
    Route("POST", "/v3/snapshots/{id}/action", _V0, snapshot_actions.action),
    Route("GET", "/v3/snapshots/{id}/metadata", _V0, snapshot_metadata.index),
    Route("POST", "/v3/snapshots/{id}/metadata", _V0, snapshot_metadata.merge),
    Route("PUT", "/v3/snapshots/{id}/metadata", _V0, snapshot_metadata.replace),
    Route("GET", "/v3/snapshots/{id}/metadata/{key}", _V0, snapshot_metadata.show),
    Route("PUT", "/v3/snapshots/{id}/metadata/{key}", _V0, snapshot_metadata.update),
    Route("DELETE", "/v3/snapshots/{id}/metadata/{key}", _V0, snapshot_metadata.delete),
    Route("POST", "/v3/manageable_snapshots", _MANAGE, manageable_snapshots.create),
    Route("GET", "/v3/manageable_snapshots", _MANAGE, manageable_snapshots.index),
    Route(
        "GET", "/v3/manageable_snapshots/detail", _MANAGE, manageable_snapshots.detail
    ),
    Route("POST", "/v3/os-snapshot-manage", _V0, manageable_snapshots.create),
    Route("GET", "/v3/os-snapshot-manage", _V0, manageable_snapshots.index),
    Route("GET", "/v3/os-snapshot-manage/detail", _V0, manageable_snapshots.detail),
    Route("POST", "/v3/manageable_volumes", _MANAGE, manageable.create),
    Route("GET", "/v3/manageable_volumes", _MANAGE, manageable.index),
    Route("GET", "/v3/manageable_volumes/detail", _MANAGE, manageable.detail),
    Route("POST", "/v3/os-volume-manage", _V0, manageable.create),
    Route("GET", "/v3/os-volume-manage", _V0, manageable.index),
    Route("GET", "/v3/os-volume-manage/detail", _V0, manageable.detail),
    Route("POST", "/v3/attachments", _ATTACH, attachments.create),
    Route("GET", "/v3/attachments", _ATTACH, attachments.index),
    Route("GET", "/v3/attachments/detail", _ATTACH, attachments.detail),
    Route("GET", "/v3/attachments/{id}", _ATTACH, attachments.show),
    Route("PUT", "/v3/attachments/{id}", _ATTACH, attachments.update),
    Route("DELETE", "/v3/attachments/{id}", _ATTACH, attachments.delete),
    Route("POST", "/v3/attachments/{id}/action", _COMPLETE, attachments.action),
    Route("POST", "/v3/types", _V0, types.create),
    Route("GET", "/v3/types", _V0, types.index),
    Route("GET", "/v3/types/default", _V0, types.default),
    Route("GET", "/v3/types/{id}", _V0, types.show),
    Route("PUT", "/v3/types/{id}", _V0, types.update),
    Route("DELETE", "/v3/types/{id}", _V0, types.delete),
    Route("GET", "/v3/types/{id}/extra_specs", _V0, types.specs),
    Route("POST", "/v3/types/{id}/extra_specs", _V0, types.set_specs),
    Route("GET", "/v3/types/{id}/extra_specs/{key}", _V0, types.spec),
    Route("PUT", "/v3/types/{id}/extra_specs/{key}", _V0, types.set_spec),
    Route("DELETE", "/v3/types/{id}/extra_specs/{key}", _V0, types.delete_spec),
    Route("GET", "/v3/types/{id}/os-volume-type-access", _V0, type_access.index),
    Route("GET", "/v3/types/{id}/encryption", _V0, type_encryption.index),
    Route("POST", "/v3/types/{id}/encryption", _V0, type_encryption.create),
    Route("GET", _ENCRYPTION, _V0, type_encryption.show),
    Route("PUT", _ENCRYPTION, _V0, type_encryption.update),
    Route("DELETE", _ENCRYPTION, _V0, type_encryption.delete),
    Route("POST", "/v3/types/{id}/action", _V0, type_access.action),
    Route("GET", "/v3/default-types", _DEFAULTS, type_access.defaults),
    Route("GET", "/v3/default-types/{id}", _DEFAULTS, type_access.default),
    Route("PUT", "/v3/default-types/{id}", _DEFAULTS, type_access.set_default),
    Route("DELETE", "/v3/default-types/{id}", _DEFAULTS, type_access.unset_default),
    Route("GET", "/v3/os-services", _V0, services.index),
    Route("PUT", "/v3/os-services/enable", _V0, services.enable),
    Route("PUT", "/v3/os-services/disable", _V0, services.disable),
    Route(
        "PUT",
        "/v3/os-services/disable-log-reason",
        _V0,
        services.disable_with_reason,
    ),
    Route("PUT", "/v3/os-services/freeze", _V0, services.freeze),
    Route("PUT", "/v3/os-services/thaw", _V0, services.thaw),
    Route("PUT", "/v3/os-services/failover_host", _V0, services.fail_over),
    Route("PUT", "/v3/os-services/failover", _FAILOVER, services.fail_over),
    Route("PUT", "/v3/os-services/set-log", _LOGS, services.set_log),
    Route("PUT", "/v3/os-services/get-log", _LOGS, services.get_log),
    Route("GET", "/v3/os-availability-zone", _V0, catalog_pages.zones),
    Route("GET", "/v3/os-hosts", _V0, catalog_pages.hosts),
    Route("GET", "/v3/os-hosts/{id}", _V0, catalog_pages.host),
    Route("GET", "/v3/extensions", _V0, catalog_pages.extensions),
    Route("GET", "/v3/extensions/{id}", _V0, catalog_pages.extension),
    Route("GET", "/v3/resource_filters", _FILTERS, catalog_pages.filters),
    Route("GET", "/v3/clusters", _CLUSTERS, catalog_pages.clusters),
    Route("GET", "/v3/clusters/detail", _CLUSTERS, catalog_pages.clusters),
    Route("GET", "/v3/clusters/{id}", _CLUSTERS, catalog_pages.cluster),
    Route("PUT", "/v3/clusters/enable", _CLUSTERS, catalog_pages.enable_cluster),
    Route("PUT", "/v3/clusters/disable", _CLUSTERS, catalog_pages.disable_cluster),
    Route("POST", "/v3/workers/cleanup", _CLEANUP, catalog_pages.clean_up),
    Route("GET", "/v3/scheduler-stats/get_pools", _V0, services.pools),
    Route("POST", "/v3/scheduler-stats/explain", _V0, services.explain),
    Route("GET", "/v3/capabilities/{host}", _V0, services.capabilities),
    Route("POST", "/v3/qos-specs", _V0, qos.create),
    Route("GET", "/v3/qos-specs", _V0, qos.index),
    Route("GET", "/v3/qos-specs/{id}", _V0, qos.show),
    Route("PUT", "/v3/qos-specs/{id}", _V0, qos.update),
    Route("DELETE", "/v3/qos-specs/{id}", _V0, qos.delete),
    Route("PUT", "/v3/qos-specs/{id}/delete_keys", _V0, qos.delete_keys),
    Route("GET", "/v3/qos-specs/{id}/associations", _V0, qos.associations),
    Route("GET", "/v3/qos-specs/{id}/associate", _V0, qos.associate),
    Route("GET", "/v3/qos-specs/{id}/disassociate", _V0, qos.disassociate),
    Route("GET", "/v3/qos-specs/{id}/disassociate_all", _V0, qos.disassociate_all),
    Route("GET", "/v3/limits", _V0, quotas.limits),
    Route("GET", "/v3/os-quota-sets/{id}", _V0, quotas.show),
    Route("GET", "/v3/os-quota-sets/{id}/defaults", _V0, quotas.defaults),
    Route("PUT", "/v3/os-quota-sets/{id}", _V0, quotas.update),
    Route("DELETE", "/v3/os-quota-sets/{id}", _V0, quotas.delete),
    Route("GET", "/v3/os-quota-class-sets/{id}", _V0, quotas.show_class),
    Route("PUT", "/v3/os-quota-class-sets/{id}", _V0, quotas.update_class),
    Route("GET", "/v3/messages", _MESSAGES, messages.index),
    Route("GET", "/v3/messages/{id}", _MESSAGES, messages.show),
    Route("DELETE", "/v3/messages/{id}", _MESSAGES, messages.delete),
    Route("GET", "/v3/lunshare/wipes", _V0, wipes.index),
    Route("GET", "/v3/lunshare/hosts", _V0, hosts.index),
    Route("GET", "/v3/lunshare/orphans", _V0, orphans.index),
    Route("POST", "/v3/lunshare/orphans", _V0, orphans.recover),
    Route("DELETE", "/v3/lunshare/orphans/{kind}/{id}", _V0, orphans.delete),
    Route("GET", "/v3/lunshare/health", _V0, health.full),
    Route("GET", "/v3/lunshare/metrics", _V0, health.metrics),
)

#: Paths of health checks. Balancers send them with any Host header.
HEALTH = frozenset({"/healthz", "/healthcheck", "/readyz"})
#: Paths that need no identity. Every other one does.
PUBLIC = HEALTH | {"/", "/v3", "/openapi.json"}

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
    """Return the table by path, then by method. HEAD is handled as GET."""
    table: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        table.setdefault(route.path, {})[route.method] = route
        if route.method == "GET":
            table[route.path]["HEAD"] = route
    return table


def without_project(path: str) -> tuple[str, str | None]:
    """Split a path under /v3/ into the path of the table and the project, or None.

    The name of a resource in the table is never a project.
    """
    first, _, rest = path.removeprefix(_PREFIX).partition("/")
    if first in _RESOURCES:
        return path, None
    return _PREFIX + rest, first


def as_text() -> str:
    """Return the table as text."""
    return "\n".join(
        f"{route.method:<7}{route.path:<40}{microversions.text(route.since):<6}"
        f"{route.handler.__module__.rpartition('.')[2]}.{route.handler.__name__}"
        for route in ROUTES
    )


if __name__ == "__main__":
    print(as_text())
