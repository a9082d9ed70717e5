# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about what belongs to a project. The first part of the table of policies."""

from __future__ import annotations

from lunshare.agent.api.access.policy_checks import ADMIN, MEMBER, READER, Rule

_VOLUME = "/volumes/{id}"
_ACTION = f"{_VOLUME}/action"
_SNAPSHOT = "/snapshots/{id}"
_SNAPSHOT_ACTION = f"{_SNAPSHOT}/action"

#: Name, default check, what it allows, operations.
RULES: tuple[Rule, ...] = (
    ("volume:create", MEMBER, "Create a volume.", ("POST /volumes",)),
    (
        "volume:multiattach",
        MEMBER,
        "Create a volume for several hosts, or retype a volume to such a type.",
        ("POST /volumes (multiattach)", f"POST {_ACTION} (os-retype to multiattach)"),
    ),
    ("volume:get", READER, "Show a volume.", (f"GET {_VOLUME}",)),
    (
        "volume:get_all",
        READER,
        "List and count volumes.",
        ("GET /volumes", "GET /volumes/detail", "GET /volumes/summary"),
    ),
    (
        "volume:update",
        MEMBER,
        "Change a volume.",
        (f"PUT {_VOLUME}", f"POST {_ACTION} (os-set_bootable)"),
    ),
    ("volume:delete", MEMBER, "Delete a volume.", (f"DELETE {_VOLUME}",)),
    (
        "volume:force_delete",
        ADMIN,
        "Delete a volume that is being created (force=true).",
        (f"DELETE {_VOLUME}?force=true",),
    ),
    (
        "volume_extension:volume_host_attribute",
        ADMIN,
        "See on which backend a volume is.",
        (f"GET {_VOLUME} (os-vol-host-attr)", "GET /volumes/detail (os-vol-host-attr)"),
    ),
    (
        "volume_extension:volume_mig_status_attribute",
        ADMIN,
        "See whether a volume is being migrated.",
        (
            f"GET {_VOLUME} (os-vol-mig-status-attr)",
            "GET /volumes/detail (os-vol-mig-status-attr)",
        ),
    ),
    (
        "volume_extension:volume_tenant_attribute",
        READER,
        "See of which project a volume is.",
        (
            f"GET {_VOLUME} (os-vol-tenant-attr)",
            "GET /volumes/detail (os-vol-tenant-attr)",
        ),
    ),
    (
        "volume_extension:volume_image_metadata:show",
        READER,
        "See the image metadata of a volume.",
        (
            f"GET {_VOLUME} (volume_image_metadata)",
            "GET /volumes/detail (volume_image_metadata)",
        ),
    ),
    (
        "volume_extension:volume_image_metadata:set",
        MEMBER,
        "Change image metadata.",
        (f"POST {_ACTION} (os-set_image_metadata)",),
    ),
    (
        "volume_extension:volume_image_metadata:remove",
        MEMBER,
        "Delete image metadata.",
        (f"POST {_ACTION} (os-unset_image_metadata)",),
    ),
    (
        "volume:get_volume_metadata",
        READER,
        "Show the metadata of a volume.",
        (
            f"GET {_VOLUME}/metadata",
            f"GET {_VOLUME}/metadata/{{key}}",
            f"POST {_ACTION} (os-show_image_metadata)",
        ),
    ),
    (
        "volume_extension:volume_encryption_metadata",
        READER,
        "Show the encryption of a volume.",
        (f"GET {_VOLUME}/encryption",),
    ),
    (
        "volume:create_volume_metadata",
        MEMBER,
        "Add metadata to a volume.",
        (f"POST {_VOLUME}/metadata",),
    ),
    (
        "volume:update_volume_metadata",
        MEMBER,
        "Replace metadata of a volume.",
        (f"PUT {_VOLUME}/metadata", f"PUT {_VOLUME}/metadata/{{key}}"),
    ),
    (
        "volume:delete_volume_metadata",
        MEMBER,
        "Delete metadata of a volume.",
        (f"DELETE {_VOLUME}/metadata/{{key}}",),
    ),
    ("volume:extend", MEMBER, "Extend a volume.", (f"POST {_ACTION} (os-extend)",)),
    (
        "volume:extend_attached_volume",
        MEMBER,
        "Extend a volume that a host has.",
        (f"POST {_ACTION} (os-extend while attached)",),
    ),
    ("volume:retype", MEMBER, "Change its type.", (f"POST {_ACTION} (os-retype)",)),
    ("volume:revert_to_snapshot", MEMBER, "Revert it.", (f"POST {_ACTION} (revert)",)),
    (
        "volume:update_readonly_flag",
        MEMBER,
        "Make a volume read-only for all hosts, or not.",
        (f"POST {_ACTION} (os-update_readonly_flag)",),
    ),
    (
        "volume_extension:volume_actions:reserve",
        MEMBER,
        "Reserve a volume for a host.",
        (f"POST {_ACTION} (os-reserve)",),
    ),
    (
        "volume_extension:volume_actions:unreserve",
        MEMBER,
        "Give up a reservation.",
        (f"POST {_ACTION} (os-unreserve)",),
    ),
    (
        "volume_extension:volume_actions:initialize_connection",
        MEMBER,
        "Open a volume to a host, and see the secret for it.",
        (f"POST {_ACTION} (os-initialize_connection)",),
    ),
    (
        "volume_extension:volume_actions:terminate_connection",
        MEMBER,
        "Close the access of a host.",
        (f"POST {_ACTION} (os-terminate_connection)",),
    ),
    (
        "volume_extension:volume_actions:attach",
        MEMBER,
        "Note that a host uses a volume.",
        (f"POST {_ACTION} (os-attach)",),
    ),
    (
        "volume_extension:volume_actions:detach",
        MEMBER,
        "Detach a host.",
        (f"POST {_ACTION} (os-detach)",),
    ),
    (
        "volume_extension:volume_actions:begin_detaching",
        MEMBER,
        "Announce a detach.",
        (f"POST {_ACTION} (os-begin_detaching)",),
    ),
    (
        "volume_extension:volume_actions:roll_detaching",
        MEMBER,
        "Withdraw the announcement of a detach.",
        (f"POST {_ACTION} (os-roll_detaching)",),
    ),
    (
        "volume_extension:volume_admin_actions:migrate_volume",
        ADMIN,
        "Migrate a volume to another backend.",
        (f"POST {_ACTION} (os-migrate_volume)",),
    ),
    (
        "volume_extension:volume_admin_actions:reset_status",
        ADMIN,
        "Bring an erroneous status back in line with the storage.",
        (f"POST {_ACTION} (os-reset_status)",),
    ),
    (
        "volume_extension:volume_admin_actions:force_delete",
        ADMIN,
        "Delete a volume in any status.",
        (f"POST {_ACTION} (os-force_delete)",),
    ),
    (
        "volume_extension:volume_admin_actions:force_detach",
        ADMIN,
        "Close the access of an attachment, in any status.",
        (f"POST {_ACTION} (os-force_detach)",),
    ),
    (
        "volume_extension:volume_unmanage",
        ADMIN,
        "Unmanage a volume.",
        (f"POST {_ACTION} (os-unmanage)",),
    ),
    ("volume:create_snapshot", MEMBER, "Create a snapshot.", ("POST /snapshots",)),
    ("volume:get_snapshot", READER, "Show a snapshot.", (f"GET {_SNAPSHOT}",)),
    (
        "volume:get_all_snapshots",
        READER,
        "List snapshots.",
        ("GET /snapshots", "GET /snapshots/detail"),
    ),
    (
        "volume_extension:extended_snapshot_attributes",
        READER,
        "See project and progress of a snapshot.",
        (
            f"GET {_SNAPSHOT} (os-extended-snapshot-attributes)",
            "GET /snapshots/detail (os-extended-snapshot-attributes)",
        ),
    ),
    ("volume:update_snapshot", MEMBER, "Change one.", (f"PUT {_SNAPSHOT}",)),
    ("volume:delete_snapshot", MEMBER, "Delete one.", (f"DELETE {_SNAPSHOT}",)),
    (
        "volume:get_snapshot_metadata",
        READER,
        "Show the metadata of a snapshot.",
        (f"GET {_SNAPSHOT}/metadata", f"GET {_SNAPSHOT}/metadata/{{key}}"),
    ),
    (
        "volume:update_snapshot_metadata",
        MEMBER,
        "Change the metadata of a snapshot.",
        (
            f"POST {_SNAPSHOT}/metadata",
            f"PUT {_SNAPSHOT}/metadata",
            f"PUT {_SNAPSHOT}/metadata/{{key}}",
        ),
    ),
    (
        "volume:delete_snapshot_metadata",
        MEMBER,
        "Delete the metadata of a snapshot.",
        (f"DELETE {_SNAPSHOT}/metadata/{{key}}",),
    ),
    (
        "volume_extension:snapshot_admin_actions:reset_status",
        ADMIN,
        "Set the status of a snapshot.",
        (f"POST {_SNAPSHOT_ACTION} (os-reset_status)",),
    ),
    (
        "volume_extension:snapshot_admin_actions:force_delete",
        ADMIN,
        "Delete a snapshot in any status.",
        (f"POST {_SNAPSHOT_ACTION} (os-force_delete)",),
    ),
    (
        "snapshot_extension:snapshot_actions:update_snapshot_status",
        MEMBER,
        "Set status and progress of a snapshot that is in progress.",
        (f"POST {_SNAPSHOT_ACTION} (os-update_snapshot_status)",),
    ),
    (
        "snapshot_extension:snapshot_unmanage",
        ADMIN,
        "Unmanage a snapshot.",
        (f"POST {_SNAPSHOT_ACTION} (os-unmanage)",),
    ),
    (
        "volume:create_transfer",
        MEMBER,
        "Offer a volume to another project.",
        ("POST /os-volume-transfer", "POST /volume-transfers"),
    ),
    (
        "volume:get_transfer",
        READER,
        "Show an offer.",
        ("GET /os-volume-transfer/{id}", "GET /volume-transfers/{id}"),
    ),
    (
        "volume:get_all_transfers",
        READER,
        "List offers.",
        (
            "GET /os-volume-transfer",
            "GET /os-volume-transfer/detail",
            "GET /volume-transfers",
            "GET /volume-transfers/detail",
        ),
    ),
    (
        "volume:accept_transfer",
        MEMBER,
        "Take an offered volume.",
        ("POST /os-volume-transfer/{id}/accept", "POST /volume-transfers/{id}/accept"),
    ),
    (
        "volume:delete_transfer",
        MEMBER,
        "Withdraw an offer.",
        ("DELETE /os-volume-transfer/{id}", "DELETE /volume-transfers/{id}"),
    ),
    (
        "volume:attachment_create",
        MEMBER,
        "Reserve a volume, or open it to a host.",
        ("POST /attachments",),
    ),
    (
        "volume:attachment_update",
        MEMBER,
        "Open a volume to a host, and see the secret with which the host logs in.",
        ("PUT /attachments/{id}", "GET /attachments/{id} (auth_password)"),
    ),
    (
        "volume:attachment_delete",
        MEMBER,
        "Close an access.",
        ("DELETE /attachments/{id}",),
    ),
    (
        "volume:attachment_complete",
        MEMBER,
        "Confirm that a host uses the volume.",
        ("POST /attachments/{id}/action (os-complete)",),
    ),
    (
        "volume:multiattach_bootable_volume",
        MEMBER,
        "Attach a second host to a bootable volume.",
        (
            "POST /attachments (bootable and attached)",
            f"POST {_ACTION} (os-reserve, bootable and attached)",
        ),
    ),
    (
        "lunshare:attachment_get",
        READER,
        "Show an attachment, without secrets. Cinder has no rule for it.",
        ("GET /attachments/{id}",),
    ),
    (
        "lunshare:attachment_get_all",
        READER,
        "List attachments. Cinder has no rule for it.",
        ("GET /attachments", "GET /attachments/detail"),
    ),
    ("message:get", READER, "Show a user message.", ("GET /messages/{id}",)),
    ("message:get_all", READER, "List user messages.", ("GET /messages",)),
    ("message:delete", MEMBER, "Delete one.", ("DELETE /messages/{id}",)),
)
