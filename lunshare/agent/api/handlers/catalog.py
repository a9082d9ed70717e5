# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What clients ask before they start: versions, zones, extensions, filters, clusters.

The versions and the document of the API need no token.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import orjson

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import bodies, operator_schemas, resource_filters
from lunshare.agent.api.views import operator_views
from lunshare.agent.model.errors import NotFound

#: Extensions of the API: alias, name, what it is.
_EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("os-admin-actions", "AdminActions", "reset-status, force-detach, migrate"),
    ("os-availability-zone", "AvailabilityZones", "the availability zone"),
    ("capabilities", "Capabilities", "what volumes of a backend can do"),
    ("os-extended-services", "ExtendedServices", "reasons of disabled services"),
    (
        "os-extended-snapshot-attributes",
        "ExtendedSnapshotAttributes",
        "project and progress of snapshots",
    ),
    (
        "lunshare-attachment-mode",
        "AttachmentModeChange",
        "PUT /attachments/{id} with attachment.mode, while the host has the volume",
    ),
    (
        "lunshare-live-attachments",
        "LiveAttachments",
        "attachment.live of GET /attachments/{id}: what the target says of its host",
    ),
    (
        "lunshare-lease",
        "WriteLease",
        "attachment.lease beside the mode rw, and PUT /attachments/{id}/lease",
    ),
    (
        "lunshare-batches",
        "HostBatches",
        "the actions lunshare:attach and lunshare:detach of volumes: many hosts at"
        " once",
    ),
    (
        "lunshare-handover",
        "WriteHandover",
        "the action lunshare:handover of volumes, and GET /volumes/{id}/handover",
    ),
    (
        "lunshare-fences",
        "HostFences",
        "/lunshare/fences: the access of a host to every volume is taken",
    ),
    (
        "lunshare-verify",
        "TargetVerification",
        "POST /lunshare/verify: the live targets are compared with the database",
    ),
    (
        "lunshare-reservation-keys",
        "ReservationKeys",
        "reservation_keys of /lunshare/hosts, and force=true of DELETE"
        " /attachments/{id}: a detach that drops a key",
    ),
    ("os-hosts", "Hosts", "hosts, and what projects have on them"),
    ("qos-specs", "Qos_specs_manage", "limits of volume types"),
    ("os-quota-class-sets", "QuotaClasses", "quotas of every project"),
    ("os-quota-sets", "Quotas", "quotas of projects"),
    ("scheduler-stats", "Scheduler_stats", "pools"),
    ("os-services", "Services", "services, their state and log levels"),
    ("os-snapshot-actions", "SnapshotActions", "actions on snapshots"),
    ("os-snapshot-manage", "SnapshotManage", "manage foreign snapshots"),
    ("os-types-extra-specs", "TypesExtraSpecs", "extra specs of volume types"),
    ("os-types-manage", "TypesManage", "create and change volume types"),
    ("os-used-limits", "UsedLimits", "what a project uses"),
    ("os-vol-host-attr", "VolumeHostAttribute", "the backend of a volume"),
    ("os-vol-mig-status-attr", "VolumeMigStatusAttribute", "its migration"),
    ("os-vol-tenant-attr", "VolumeTenantAttribute", "its project"),
    ("os-volume-actions", "VolumeActions", "actions on volumes"),
    ("os-volume-manage", "VolumeManage", "manage foreign disks"),
    ("os-volume-type-access", "VolumeTypeAccess", "access to private types"),
    ("os-volume-unmanage", "VolumeUnmanage", "unmanage volumes"),
)


def choices(call: Call) -> Answer:
    """GET /: list the versions of the API"""
    return Answer(300, _document(call))


def version(call: Call) -> Answer:
    """GET /v3: show version 3 of the API"""
    return Answer(200, _document(call))


def document(call: Call) -> Answer:
    """GET /openapi.json: describe every route, body and answer (OpenAPI 3.1)"""
    return Answer(200, orjson.Fragment(_document_bytes()))


@functools.cache
def _document_bytes() -> bytes:
    """Return the document: whoever asks for it needs no token."""
    return resources.files("lunshare.agent.api").joinpath("openapi.json").read_bytes()


def zones(call: Call) -> Answer:
    """GET /os-availability-zone: list the availability zone of this node"""
    open_ = any(line.enabled for line in call.services.node.services(call.ctx))
    zone = operator_views.zone(call.services.node.zone, open_)
    return Answer(200, {"availabilityZoneInfo": [zone]})


def hosts(call: Call) -> Answer:
    """GET /os-hosts: list the services by host"""
    services = call.services.node.services(call.ctx)
    return Answer(
        200, {"hosts": [operator_views.service_host(row) for row in services]}
    )


def host(call: Call) -> Answer:
    """GET /os-hosts/{id}: show what each project has on a backend"""
    name = call.args["id"]
    totals = call.services.node.totals(call.ctx, name)
    sums = [sum(counts[column] for _, counts in totals) for column in range(4)]
    rows = [operator_views.host_totals(name, "(total)", sums)]
    rows += [operator_views.host_totals(name, *row) for row in totals]
    return Answer(200, {"host": [{"resource": row} for row in rows]})


def extensions(call: Call) -> Answer:
    """GET /extensions: list the extensions of the API"""
    rows = [operator_views.extension(*names) for names in _EXTENSIONS]
    return Answer(200, {"extensions": rows})


def extension(call: Call) -> Answer:
    """GET /extensions/{id}: show one extension of the API"""
    for names in _EXTENSIONS:
        if names[0] == call.args["id"]:
            return Answer(200, {"extension": operator_views.extension(*names)})
    raise NotFound("extension", call.args["id"])


def filters(call: Call) -> Answer:
    """GET /resource_filters: list the filters of lists, by resource"""
    name = call.query.get("resource")
    rows = [
        {"resource": resource, "filters": list(keys)}
        for resource, keys in resource_filters.FILTERS.items()
        if name in (None, resource)
    ]
    return Answer(200, {"resource_filters": rows})


def clusters(call: Call) -> Answer:
    """GET /clusters and /clusters/detail: list clusters; a node is in none"""
    return Answer(200, {"clusters": []})


def cluster(call: Call) -> Answer:
    """GET /clusters/{id}: 404, because a node is in no cluster"""
    raise NotFound("cluster", call.args["id"])


def enable_cluster(call: Call) -> Answer:
    """PUT /clusters/enable: 404, because a node is in no cluster"""
    raise NotFound("cluster", operator_schemas.ENABLE_CLUSTER.read(call)["name"])


def disable_cluster(call: Call) -> Answer:
    """PUT /clusters/disable: 404, because a node is in no cluster"""
    raise NotFound("cluster", operator_schemas.DISABLE_CLUSTER.read(call)["name"])


def clean_up(call: Call) -> Answer:
    """POST /workers/cleanup: nothing to do; a restart continues what was stopped"""
    operator_schemas.CLEANUP.read(call)
    return Answer(202, {"cleaning": [], "unavailable": []})


def _document(call: Call) -> dict[str, Any]:
    media = f"{bodies.MEDIA_TYPE};version=3"
    return {
        "versions": [
            {
                "id": "v3.0",
                "status": "CURRENT",
                "version": microversions.text(microversions.MAX),
                "min_version": microversions.text(microversions.MIN),
                # When 3.71 was published; clients show it and nothing else.
                "updated": "2023-08-31T00:00:00Z",
                "links": [
                    {
                        "rel": "describedby",
                        "type": "text/html",
                        "href": "https://docs.openstack.org/",
                    },
                    {"rel": "self", "href": f"{call.root}/v3/"},
                ],
                "media-types": [{"base": "application/json", "type": media}],
            }
        ]
    }
