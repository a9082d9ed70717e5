# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who may do what: the one table of rules, with the names that Cinder 29 uses.

A route or an action names its rule (lunshare.agent.api.routes). policy.yaml may replace
a rule's check. The target of every check is the project of the request, since what
belongs to another project is 404 to everyone but administrators before a rule is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oslo_config import cfg
from oslo_policy import policy

from lunshare.agent.api.routes import ROUTES, UNDECLARED

ADMIN = "rule:admin_api"
READER = "rule:xena_system_admin_or_project_reader"
MEMBER = "rule:xena_system_admin_or_project_member"
ANYBODY = "@"


class Rule(NamedTuple):
    """One rule: its default check, what it allows, and what it decides on.

    ``parts`` are the operations that no route or action names: a part of an answer, or
    a further condition.
    """

    name: str
    check: str
    what: str
    parts: tuple[str, ...] = ()


def _shown(resource: str, field: str) -> tuple[str, ...]:
    """Return the operations that show a field of one object, and of all in a list."""
    return (f"GET /{resource}/{{id}} ({field})", f"GET /{resource}/detail ({field})")


_CHECKS = (
    Rule("context_is_admin", "role:admin", "Who is an administrator of all projects."),
    Rule(
        "admin_api",
        "is_admin:True or (role:admin and is_admin_project:True)",
        "The default of what only administrators may do.",
    ),
    Rule(
        "xena_system_admin_or_project_reader",
        "(role:admin) or (role:reader and project_id:%(project_id)s)",
        "The default of what changes nothing.",
    ),
    Rule(
        "xena_system_admin_or_project_member",
        "(role:admin) or (role:member and project_id:%(project_id)s)",
        "The default of what changes something of a project.",
    ),
    Rule(UNDECLARED, ADMIN, "What this table forgot."),
)

# fmt: off
RULES = (
    Rule("volume:create", MEMBER, "Create a volume."),
    Rule("volume:multiattach", MEMBER,
         "Create a volume for several hosts, or retype a volume to such a type.",
         ("POST /volumes (multiattach)",
          "POST /volumes/{id}/action (os-retype to multiattach)")),
    Rule("volume:get", READER, "Show a volume."),
    Rule("volume:get_all", READER, "List and count volumes."),
    Rule("volume:update", MEMBER, "Change a volume."),
    Rule("volume:delete", MEMBER, "Delete a volume."),
    Rule("volume:force_delete", ADMIN,
         "Delete a volume that is being created (force=true).",
         ("DELETE /volumes/{id}?force=true",)),
    Rule("volume_extension:volume_host_attribute", ADMIN,
         "See on which backend a volume is.", _shown("volumes", "os-vol-host-attr")),
    Rule("volume_extension:volume_mig_status_attribute", ADMIN,
         "See whether a volume is being migrated.",
         _shown("volumes", "os-vol-mig-status-attr")),
    Rule("volume_extension:volume_tenant_attribute", READER,
         "See of which project a volume is.", _shown("volumes", "os-vol-tenant-attr")),
    Rule("volume_extension:volume_image_metadata:show", READER,
         "See the image metadata of a volume.",
         _shown("volumes", "volume_image_metadata")),
    Rule("volume_extension:volume_image_metadata:set", MEMBER,
         "Change image metadata."),
    Rule("volume_extension:volume_image_metadata:remove", MEMBER,
         "Delete image metadata."),
    Rule("volume:get_volume_metadata", READER, "Show the metadata of a volume."),
    Rule("volume_extension:volume_encryption_metadata", READER,
         "Show the encryption of a volume."),
    Rule("volume:create_volume_metadata", MEMBER, "Add metadata to a volume."),
    Rule("volume:update_volume_metadata", MEMBER, "Replace metadata of a volume."),
    Rule("volume:delete_volume_metadata", MEMBER, "Delete metadata of a volume."),
    Rule("volume:extend", MEMBER, "Extend a volume."),
    Rule("volume:extend_attached_volume", MEMBER, "Extend a volume that a host has.",
         ("POST /volumes/{id}/action (os-extend while attached)",)),
    Rule("volume:retype", MEMBER, "Change its type."),
    Rule("volume:revert_to_snapshot", MEMBER, "Revert it."),
    Rule("volume:update_readonly_flag", MEMBER,
         "Make a volume read-only for all hosts, or not."),
    Rule("volume_extension:volume_actions:reserve", MEMBER,
         "Reserve a volume for a host."),
    Rule("volume_extension:volume_actions:unreserve", MEMBER, "Give up a reservation."),
    Rule("volume_extension:volume_actions:initialize_connection", MEMBER,
         "Open a volume to a host, and see the secret for it."),
    Rule("volume_extension:volume_actions:terminate_connection", MEMBER,
         "Close the access of a host."),
    Rule("volume_extension:volume_actions:attach", MEMBER,
         "Note that a host uses a volume."),
    Rule("lunshare:handover", MEMBER,
         "Hand the write access of a volume to another of its hosts."),
    Rule("volume_extension:volume_actions:detach", MEMBER, "Detach a host."),
    Rule("volume_extension:volume_actions:begin_detaching", MEMBER,
         "Announce a detach."),
    Rule("volume_extension:volume_actions:roll_detaching", MEMBER,
         "Withdraw the announcement of a detach."),
    Rule("volume_extension:volume_admin_actions:migrate_volume", ADMIN,
         "Migrate a volume to another backend."),
    Rule("volume_extension:volume_admin_actions:reset_status", ADMIN,
         "Bring an erroneous status back in line with the storage."),
    Rule("volume_extension:volume_admin_actions:force_delete", ADMIN,
         "Delete a volume in any status."),
    Rule("volume_extension:volume_admin_actions:force_detach", ADMIN,
         "Close the access of an attachment, in any status."),
    Rule("volume_extension:volume_unmanage", ADMIN, "Unmanage a volume."),
    Rule("volume:create_snapshot", MEMBER, "Create a snapshot."),
    Rule("volume:get_snapshot", READER, "Show a snapshot."),
    Rule("volume:get_all_snapshots", READER, "List snapshots."),
    Rule("volume_extension:extended_snapshot_attributes", READER,
         "See project and progress of a snapshot.",
         _shown("snapshots", "os-extended-snapshot-attributes")),
    Rule("volume:update_snapshot", MEMBER, "Change one."),
    Rule("volume:delete_snapshot", MEMBER, "Delete one."),
    Rule("volume:get_snapshot_metadata", READER, "Show the metadata of a snapshot."),
    Rule("volume:update_snapshot_metadata", MEMBER,
         "Change the metadata of a snapshot."),
    Rule("volume:delete_snapshot_metadata", MEMBER,
         "Delete the metadata of a snapshot."),
    Rule("volume_extension:snapshot_admin_actions:reset_status", ADMIN,
         "Set the status of a snapshot."),
    Rule("volume_extension:snapshot_admin_actions:force_delete", ADMIN,
         "Delete a snapshot in any status."),
    Rule("snapshot_extension:snapshot_actions:update_snapshot_status", MEMBER,
         "Set status and progress of a snapshot that is in progress."),
    Rule("snapshot_extension:snapshot_unmanage", ADMIN, "Unmanage a snapshot."),
    Rule("volume:create_transfer", MEMBER, "Offer a volume to another project."),
    Rule("volume:get_transfer", READER, "Show an offer."),
    Rule("volume:get_all_transfers", READER, "List offers."),
    Rule("volume:accept_transfer", MEMBER, "Take an offered volume."),
    Rule("volume:delete_transfer", MEMBER, "Withdraw an offer."),
    Rule("volume:attachment_create", MEMBER, "Reserve a volume, or open it to a host."),
    Rule("volume:attachment_update", MEMBER,
         "Open a volume to a host, and see the secret with which the host logs in.",
         ("GET /attachments/{id} (auth_password)",)),
    Rule("volume:attachment_delete", MEMBER, "Close an access."),
    Rule("volume:attachment_complete", MEMBER, "Confirm that a host uses the volume."),
    Rule("volume:multiattach_bootable_volume", MEMBER,
         "Attach a second host to a bootable volume.",
         ("POST /attachments (bootable and attached)",
          "POST /volumes/{id}/action (os-reserve, bootable and attached)")),
    Rule("lunshare:attachment_get", READER,
         "Show an attachment, without secrets. Cinder has no rule for it."),
    Rule("lunshare:attachment_get_all", READER,
         "List attachments. Cinder has no rule for it."),
    Rule("message:get", READER, "Show a user message."),
    Rule("message:get_all", READER, "List user messages."),
    Rule("message:delete", MEMBER, "Delete one."),
    Rule("volume_extension:type_create", ADMIN, "Create a type."),
    Rule("volume_extension:type_update", ADMIN, "Change a type."),
    Rule("volume_extension:type_delete", ADMIN, "Delete it."),
    Rule("volume_extension:type_get", READER, "Show a type."),
    Rule("volume_extension:type_get_all", READER, "List types."),
    Rule("volume_extension:access_types_extra_specs", READER,
         "See extra specs of a type.",
         ("GET /types (extra_specs)", "GET /types/{id} (extra_specs)")),
    Rule("volume_extension:access_types_qos_specs_id", ADMIN,
         "See which QoS specs a type has.",
         ("GET /types (qos_specs_id)", "GET /types/{id} (qos_specs_id)")),
    Rule("volume_extension:volume_type_access", MEMBER,
         "See whether a type is public.",
         ("GET /types (os-volume-type-access)",
          "GET /types/{id} (os-volume-type-access)")),
    Rule("volume_extension:volume_type_access:addProjectAccess", ADMIN,
         "Let a project use a private type."),
    Rule("volume_extension:volume_type_access:removeProjectAccess", ADMIN,
         "Remove a project's access to a private type."),
    Rule("volume_extension:volume_type_access:get_all_for_type", ADMIN,
         "List the projects that may use a type."),
    Rule("volume_extension:volume_type_encryption:get", ADMIN,
         "Show the encryption of a type."),
    Rule("volume_extension:volume_type_encryption:create", ADMIN, "Encrypt a type."),
    Rule("volume_extension:volume_type_encryption:update", ADMIN,
         "Change the encryption of a type."),
    Rule("volume_extension:volume_type_encryption:delete", ADMIN,
         "Delete the encryption of a type."),
    Rule("volume_extension:types_extra_specs:index", READER,
         "List the extra specs of a type."),
    Rule("volume_extension:types_extra_specs:show", READER, "Show an extra spec."),
    Rule("volume_extension:types_extra_specs:create", ADMIN, "Add extra specs."),
    Rule("volume_extension:types_extra_specs:update", ADMIN, "Change an extra spec."),
    Rule("volume_extension:types_extra_specs:delete", ADMIN, "Delete an extra spec."),
    Rule("volume_extension:types_extra_specs:read_sensitive", ADMIN,
         "See every extra spec of a type.",
         ("GET /types (all extra specs)",
          "GET /types/{id} (all extra specs)",
          "GET /types/{id}/extra_specs (all extra specs)")),
    Rule("volume_extension:default_get", ADMIN, "Show the default type of a project."),
    Rule("volume_extension:default_get_all", ADMIN, "List default types of projects."),
    Rule("volume_extension:default_set_or_update", ADMIN,
         "Set the default type of a project."),
    Rule("volume_extension:default_unset", ADMIN,
         "Unset the default type of a project."),
    Rule("volume_extension:qos_specs_manage:get_all", ADMIN, "List QoS specs."),
    Rule("volume_extension:qos_specs_manage:get", ADMIN, "Show QoS specs."),
    Rule("volume_extension:qos_specs_manage:create", ADMIN, "Create QoS specs."),
    Rule("volume_extension:qos_specs_manage:update", ADMIN,
         "Change QoS specs, and which types have them."),
    Rule("volume_extension:qos_specs_manage:delete", ADMIN,
         "Delete QoS specs, or some of their keys."),
    Rule("volume_extension:quotas:show", READER, "Show the quotas of the own project."),
    Rule("volume_extension:quotas:update", ADMIN, "Change quotas."),
    Rule("volume_extension:quotas:delete", ADMIN,
         "Give a project the default quotas again."),
    Rule("volume_extension:quota_classes:get", ADMIN, "Show the quotas of a class."),
    Rule("volume_extension:quota_classes:update", ADMIN,
         "Change the quotas of a class."),
    Rule("limits_extension:used_limits", READER,
         "See how much of its quotas the project uses.", ("GET /limits (used)",)),
    Rule("volume_extension:services:index", ADMIN, "List services."),
    Rule("volume_extension:services:update", ADMIN,
         "Enable or disable a service, and change log levels."),
    Rule("volume:freeze_host", ADMIN, "Freeze a backend."),
    Rule("volume:thaw_host", ADMIN, "End the freeze of a backend."),
    Rule("volume:failover_host", ADMIN,
         "Fail over, which no backend of this node can."),
    Rule("volume_extension:hosts", ADMIN, "List hosts."),
    Rule("clusters:get_all", ADMIN, "List clusters, of which this node has none."),
    Rule("clusters:get", ADMIN, "Show a cluster."),
    Rule("clusters:update", ADMIN, "Enable or disable a cluster."),
    Rule("workers:cleanup", ADMIN, "Continue operations that were interrupted."),
    Rule("scheduler_extension:scheduler_stats:get_pools", ADMIN, "List pools."),
    Rule("volume_extension:capabilities", ADMIN,
         "Describe what volumes of a backend can do."),
    Rule("volume_extension:volume_manage", ADMIN, "Make a foreign disk a volume."),
    Rule("volume_extension:list_manageable", ADMIN, "List foreign disks."),
    Rule("snapshot_extension:snapshot_manage", ADMIN,
         "Make a foreign disk a snapshot."),
    Rule("snapshot_extension:list_manageable", ADMIN, "List foreign snapshots."),
    Rule("lunshare:catalog", ANYBODY,
         "See zones, extensions, filters and limits. Cinder has no rule for it."),
    Rule("lunshare:operate", ADMIN,
         "What only this node has: hosts, drift, orphans, wipes, health, explain."),
    Rule("lunshare:fence", ADMIN,
         "Take the access of a host to every volume, or give it back."),
    Rule("lunshare:metrics", ADMIN,
         "Read the metrics. metrics_listen has addresses at which no rule is asked."),
)
# fmt: on


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule; the entry point ``oslo.policy.policies``."""
    checks = [
        policy.RuleDefault(rule.name, rule.check, description=rule.what)
        for rule in _CHECKS
    ]
    return [*checks, *_documented()]


def get_enforcer() -> policy.Enforcer:
    """Return the rules with the policy.yaml of /etc/lunshare; for oslopolicy-*.

    It is the entry point ``oslo.policy.enforcer``.
    """
    conf = cfg.ConfigOpts()
    conf([], project="lunshare")
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    return enforcer


def _documented() -> Iterator[policy.DocumentedRuleDefault]:
    operations: dict[str, list[str]] = {rule.name: list(rule.parts) for rule in RULES}
    for route in ROUTES:
        operation = f"{route.method} {route.path.removeprefix('/v3')}"
        if route.rule and not route.rules:
            operations[route.rule].append(operation)
        for action, name in route.rules.items():
            operations[name].append(f"{operation} ({action})")
    for rule in RULES:
        pairs = (operation.split(" ", 1) for operation in operations[rule.name])
        yield policy.DocumentedRuleDefault(
            rule.name,
            rule.check,
            rule.what,
            [{"method": method, "path": path} for method, path in pairs],
        )
