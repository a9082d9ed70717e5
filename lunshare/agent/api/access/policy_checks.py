# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The default checks of rules, with the names that Cinder 29 uses."""

from __future__ import annotations

#: Name, default check, what it allows, operations.
Rule = tuple[str, str, str, tuple[str, ...]]

ADMIN = "rule:admin_api"
READER = "rule:xena_system_admin_or_project_reader"
MEMBER = "rule:xena_system_admin_or_project_member"
ANYBODY = "@"

NAMED = (
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
