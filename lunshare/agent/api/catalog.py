# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The extensions of the API, as clients list them."""

from __future__ import annotations

#: Extensions: alias, name, what it is.
EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("os-admin-actions", "AdminActions", "reset-status, force-detach, migrate"),
    ("os-availability-zone", "AvailabilityZones", "the availability zone"),
    ("capabilities", "Capabilities", "what volumes of a backend can do"),
    ("os-extended-services", "ExtendedServices", "reasons of disabled services"),
    (
        "os-extended-snapshot-attributes",
        "ExtendedSnapshotAttributes",
        "project and progress of snapshots",
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
