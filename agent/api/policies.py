# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who may do what: the one table of rules, with the names that Cinder 29 uses.

A rule names the operations that it decides on: routes by method and path, actions by
method, path and name. policy.yaml may replace a rule's check. The target of every
check is the project of the request, since what belongs to another project is 404 to
everyone but administrators before a rule is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from oslo_config import cfg
from oslo_policy import policy

_ADMIN = "rule:admin_api"
_READER = "rule:xena_system_admin_or_project_reader"
_MEMBER = "rule:xena_system_admin_or_project_member"
_VOLUME = "/volumes/{id}"
_ACTION = f"{_VOLUME}/action"

#: Of a route without a line in this table, which a test refuses.
UNDECLARED = "lunshare:undeclared"

_NAMED = (
    ("context_is_admin", "role:admin", "Who is an administrator of all projects."),
    (
        "admin_api",
        "is_admin:True or (role:admin and is_admin_project:True)",
        "The default of what only administrators may do.",
    ),
    (
        "xena_system_admin_or_project_reader",
        "(role:admin) or (role:reader and project_id:%(project_id)s)",
        "The default of what changes nothing.",
    ),
    (
        "xena_system_admin_or_project_member",
        "(role:admin) or (role:member and project_id:%(project_id)s)",
        "The default of what changes something of a project.",
    ),
)

# Name, default check, what it allows, operations.
_RULES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("volume:create", _MEMBER, "Create a volume.", ("POST /volumes",)),
    (
        "volume:multiattach",
        _MEMBER,
        "Create a volume that several hosts may have, or make a volume one.",
        ("POST /volumes (multiattach)", f"POST {_ACTION} (os-retype to multiattach)"),
    ),
    ("volume:get", _READER, "Show a volume.", (f"GET {_VOLUME}",)),
    (
        "volume:get_all",
        _READER,
        "List volumes.",
        ("GET /volumes", "GET /volumes/detail"),
    ),
    ("volume:update", _MEMBER, "Change a volume.", (f"PUT {_VOLUME}",)),
    ("volume:delete", _MEMBER, "Delete a volume.", (f"DELETE {_VOLUME}",)),
    (
        "volume:force_delete",
        _ADMIN,
        "Delete a volume that is being created (force=true).",
        (f"DELETE {_VOLUME}?force=true",),
    ),
    (
        "volume_extension:volume_host_attribute",
        _ADMIN,
        "See on which backend a volume is.",
        (f"GET {_VOLUME} (os-vol-host-attr)", "GET /volumes/detail (os-vol-host-attr)"),
    ),
    (
        "volume_extension:volume_mig_status_attribute",
        _ADMIN,
        "See whether a volume is being migrated.",
        (
            f"GET {_VOLUME} (os-vol-mig-status-attr)",
            "GET /volumes/detail (os-vol-mig-status-attr)",
        ),
    ),
    ("volume:extend", _MEMBER, "Extend a volume.", (f"POST {_ACTION} (os-extend)",)),
    ("volume:retype", _MEMBER, "Change its type.", (f"POST {_ACTION} (os-retype)",)),
    ("volume:revert_to_snapshot", _MEMBER, "Revert it.", (f"POST {_ACTION} (revert)",)),
    (
        "volume_extension:volume_admin_actions:migrate_volume",
        _ADMIN,
        "Migrate a volume to another backend.",
        (f"POST {_ACTION} (os-migrate_volume)",),
    ),
    (
        "volume_extension:volume_admin_actions:reset_status",
        _ADMIN,
        "Bring an erroneous status back in line with the storage.",
        (f"POST {_ACTION} (os-reset_status)",),
    ),
    (
        "volume_extension:volume_admin_actions:force_detach",
        _ADMIN,
        "Close an access whatever its status is.",
        (f"POST {_ACTION} (os-force_detach)",),
    ),
    (
        "volume_extension:volume_unmanage",
        _ADMIN,
        "Give a volume's disk away.",
        (f"POST {_ACTION} (os-unmanage)",),
    ),
    (
        "volume_extension:volume_manage",
        _ADMIN,
        "Make a foreign disk a volume.",
        ("POST /manageable_volumes", "POST /os-volume-manage"),
    ),
    (
        "volume_extension:list_manageable",
        _ADMIN,
        "List foreign disks.",
        (
            "GET /manageable_volumes",
            "GET /manageable_volumes/detail",
            "GET /os-volume-manage",
            "GET /os-volume-manage/detail",
        ),
    ),
    ("volume:create_snapshot", _MEMBER, "Create a snapshot.", ("POST /snapshots",)),
    ("volume:get_snapshot", _READER, "Show a snapshot.", ("GET /snapshots/{id}",)),
    (
        "volume:get_all_snapshots",
        _READER,
        "List snapshots.",
        ("GET /snapshots", "GET /snapshots/detail"),
    ),
    ("volume:update_snapshot", _MEMBER, "Change one.", ("PUT /snapshots/{id}",)),
    ("volume:delete_snapshot", _MEMBER, "Delete one.", ("DELETE /snapshots/{id}",)),
    (
        "volume:attachment_create",
        _MEMBER,
        "Reserve a volume, or open it to a host.",
        ("POST /attachments",),
    ),
    (
        "volume:attachment_update",
        _MEMBER,
        "Open a volume to a host, and see the secret with which the host logs in.",
        ("PUT /attachments/{id}",),
    ),
    (
        "volume:attachment_delete",
        _MEMBER,
        "Close an access.",
        ("DELETE /attachments/{id}",),
    ),
    (
        "volume:attachment_complete",
        _MEMBER,
        "Confirm that a host uses the volume.",
        ("POST /attachments/{id}/action (os-complete)",),
    ),
    (
        "lunshare:attachment_get",
        _READER,
        "Show an attachment, without secrets. Cinder has no rule for it.",
        ("GET /attachments/{id}",),
    ),
    (
        "lunshare:attachment_get_all",
        _READER,
        "List attachments. Cinder has no rule for it.",
        ("GET /attachments", "GET /attachments/detail"),
    ),
    ("volume_extension:type_create", _ADMIN, "Create a type.", ("POST /types",)),
    ("volume_extension:type_update", _ADMIN, "Change a type.", ("PUT /types/{id}",)),
    ("volume_extension:type_delete", _ADMIN, "Delete it.", ("DELETE /types/{id}",)),
    (
        "volume_extension:type_get",
        _READER,
        "Show a type.",
        ("GET /types/{id}", "GET /types/default"),
    ),
    ("volume_extension:type_get_all", _READER, "List types.", ("GET /types",)),
    (
        "volume_extension:types_extra_specs:index",
        _READER,
        "List the extra specs of a type.",
        ("GET /types/{id}/extra_specs",),
    ),
    (
        "volume_extension:types_extra_specs:show",
        _READER,
        "Show an extra spec.",
        ("GET /types/{id}/extra_specs/{key}",),
    ),
    (
        "volume_extension:types_extra_specs:create",
        _ADMIN,
        "Add extra specs.",
        ("POST /types/{id}/extra_specs",),
    ),
    (
        "volume_extension:types_extra_specs:update",
        _ADMIN,
        "Change an extra spec.",
        ("PUT /types/{id}/extra_specs/{key}",),
    ),
    (
        "volume_extension:types_extra_specs:delete",
        _ADMIN,
        "Delete an extra spec.",
        ("DELETE /types/{id}/extra_specs/{key}",),
    ),
    (
        "volume_extension:types_extra_specs:read_sensitive",
        _ADMIN,
        "See every extra spec of a type.",
        (
            "GET /types (all extra specs)",
            "GET /types/{id} (all extra specs)",
            "GET /types/{id}/extra_specs (all extra specs)",
        ),
    ),
    (
        "volume_extension:services:index",
        _ADMIN,
        "List services.",
        ("GET /os-services",),
    ),
    (
        "volume_extension:services:update",
        _ADMIN,
        "Enable or disable a service.",
        (
            "PUT /os-services/enable",
            "PUT /os-services/disable",
            "PUT /os-services/disable-log-reason",
        ),
    ),
    (
        "scheduler_extension:scheduler_stats:get_pools",
        _ADMIN,
        "List pools.",
        ("GET /scheduler-stats/get_pools",),
    ),
    (
        "volume_extension:capabilities",
        _ADMIN,
        "Describe what volumes of a backend can do.",
        ("GET /capabilities/{host}",),
    ),
    ("message:get", _READER, "Show a user message.", ("GET /messages/{id}",)),
    ("message:get_all", _READER, "List user messages.", ("GET /messages",)),
    ("message:delete", _MEMBER, "Delete one.", ("DELETE /messages/{id}",)),
    (
        "lunshare:operate",
        _ADMIN,
        "What only this node has: hosts, orphans, wipes, health, explain.",
        (
            "POST /scheduler-stats/explain",
            "GET /lunshare/wipes",
            "GET /lunshare/hosts",
            "GET /lunshare/orphans",
            "POST /lunshare/orphans",
            "DELETE /lunshare/orphans/{kind}/{id}",
            "GET /lunshare/health",
        ),
    ),
)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule; the entry point ``oslo.policy.policies``."""
    named = [
        policy.RuleDefault(name, check, description=text)
        for name, check, text in _NAMED
    ]
    undeclared = policy.RuleDefault(UNDECLARED, _ADMIN, "What this table forgot.")
    return [*named, undeclared, *_documented()]


def get_enforcer() -> policy.Enforcer:
    """Return the rules with the policy.yaml of /etc/lunshare; for oslopolicy-*.

    It is the entry point ``oslo.policy.enforcer``.
    """
    conf = cfg.ConfigOpts()
    conf([], project="lunshare")
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    return enforcer


def rule_of(method: str, path: str, action: str | None = None) -> str:
    """Return the rule of a route, or of an action of it."""
    named = f"{method} {path}" + (f" ({action})" if action else "")
    return _BY_OPERATION.get(named, UNDECLARED)


def _documented() -> Iterator[policy.DocumentedRuleDefault]:
    for name, check, text, operations in _RULES:
        pairs = (operation.split(" ", 1) for operation in operations)
        listed = [{"method": method, "path": path} for method, path in pairs]
        yield policy.DocumentedRuleDefault(name, check, text, listed)


_BY_OPERATION = {
    operation: name for name, _, _, operations in _RULES for operation in operations
}
