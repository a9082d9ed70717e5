# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A request to every route and action that names something of a project.

A {name} in a path or a body is an id that the test fills in. Requests that delete
come last.
"""

from __future__ import annotations

from typing import Any

from tests.stands.node import connector

Request = tuple[str, str, Any]

_METADATA = {"metadata": {"a": "b"}}
_ITEM = {"meta": {"a": "b"}}
_HOST = {"connector": connector("b")}
_VOLUME = "/volumes/{volume}"
_SNAPSHOT = "/snapshots/{snapshot}"
_ATTACHMENT = "/attachments/{attachment}"
_TYPE = "/types/{type}"
_ENCRYPTION = {"provider": "luks", "control_location": "front-end"}
_MANAGED = {"volume_id": "{volume}", "ref": {"source-name": "x"}}

VOLUME_ACTIONS: dict[str, Any] = {
    "os-show_image_metadata": None,
    "os-set_image_metadata": _METADATA,
    "os-unset_image_metadata": {"key": "a"},
    "lunshare:handover": {"to": "{attachment}"},
    "lunshare:attach": {"key": "k", "hosts": [connector("b")]},
    "lunshare:detach": {"attachments": ["{fourth attachment}"]},
    "os-set_bootable": {"bootable": True},
    "os-update_readonly_flag": {"readonly": True},
    "os-extend": {"new_size": 2},
    "os-retype": {"new_type": "{public}"},
    "os-migrate_volume": {"host": "nowhere@fake"},
    "revert": {"snapshot_id": "{snapshot}"},
    "os-reserve": None,
    "os-unreserve": None,
    "os-attach": {"mountpoint": "/dev/vdb", "host_name": "b"},
    "os-begin_detaching": None,
    "os-roll_detaching": None,
    "os-initialize_connection": _HOST,
    "os-terminate_connection": _HOST,
    "os-reset_status": {"migration_status": "none"},
    "os-detach": {"attachment_id": "{attachment}"},
    "os-force_detach": {"attachment_id": "{third attachment}"},
    "os-unmanage": None,
    "os-force_delete": None,
}
SNAPSHOT_ACTIONS: dict[str, Any] = {
    "os-update_snapshot_status": {"status": "available"},
    "os-reset_status": {"status": "error"},
    "os-unmanage": None,
    "os-force_delete": None,
}

#: Requests whose path names it.
IN_PATH: list[Request] = [
    ("GET", _VOLUME, None),
    ("PUT", _VOLUME, {"volume": {"name": "n"}}),
    ("POST", f"{_VOLUME}/metadata", _METADATA),
    ("PUT", f"{_VOLUME}/metadata", _METADATA),
    ("PUT", f"{_VOLUME}/metadata/a", _ITEM),
    ("GET", f"{_VOLUME}/encryption", None),
    ("GET", f"{_VOLUME}/handover", None),
    ("GET", f"{_VOLUME}/metadata", None),
    ("GET", f"{_VOLUME}/metadata/a", None),
    ("DELETE", f"{_VOLUME}/metadata/a", None),
    ("GET", _SNAPSHOT, None),
    ("PUT", _SNAPSHOT, {"snapshot": {"name": "n"}}),
    ("POST", f"{_SNAPSHOT}/metadata", _METADATA),
    ("PUT", f"{_SNAPSHOT}/metadata", _METADATA),
    ("PUT", f"{_SNAPSHOT}/metadata/a", _ITEM),
    ("GET", f"{_SNAPSHOT}/metadata", None),
    ("GET", f"{_SNAPSHOT}/metadata/a", None),
    ("DELETE", f"{_SNAPSHOT}/metadata/a", None),
    ("GET", _ATTACHMENT, None),
    ("PUT", _ATTACHMENT, {"attachment": {"connector": connector("a")}}),
    ("POST", f"{_ATTACHMENT}/action", {"os-complete": None}),
    ("PUT", f"{_ATTACHMENT}/lease", {"lease": {}}),
    ("GET", "/messages/{message}", None),
    ("GET", "/os-volume-transfer/{transfer}", None),
    ("GET", "/volume-transfers/{transfer}", None),
    ("GET", _TYPE, None),
    ("PUT", _TYPE, {"volume_type": {"description": "d"}}),
    ("GET", f"{_TYPE}/extra_specs", None),
    ("POST", f"{_TYPE}/extra_specs", {"extra_specs": {"a": "b"}}),
    ("GET", f"{_TYPE}/extra_specs/a", None),
    ("PUT", f"{_TYPE}/extra_specs/a", {"a": "c"}),
    ("DELETE", f"{_TYPE}/extra_specs/a", None),
    ("POST", f"{_TYPE}/encryption", {"encryption": _ENCRYPTION}),
    ("GET", f"{_TYPE}/encryption", None),
    ("GET", f"{_TYPE}/encryption/provider", None),
    ("PUT", f"{_TYPE}/encryption/x", {"encryption": {"key_size": 256}}),
    ("DELETE", f"{_TYPE}/encryption/x", None),
    ("GET", f"{_TYPE}/os-volume-type-access", None),
    ("POST", f"{_TYPE}/action", {"addProjectAccess": {"project": "three"}}),
    ("POST", f"{_TYPE}/action", {"removeProjectAccess": {"project": "three"}}),
    *(
        ("POST", f"{_VOLUME}/action", {name: value})
        for name, value in VOLUME_ACTIONS.items()
    ),
    *(
        ("POST", f"{_SNAPSHOT}/action", {name: value})
        for name, value in SNAPSHOT_ACTIONS.items()
    ),
    ("DELETE", "/messages/{message}", None),
    ("DELETE", "/os-volume-transfer/{transfer}", None),
    ("DELETE", "/volume-transfers/{second transfer}", None),
    ("DELETE", "/snapshots/{second snapshot}", None),
    ("DELETE", "/attachments/{second attachment}", None),
    ("DELETE", "/volumes/{second volume}", None),
    ("DELETE", _TYPE, None),
]

#: Requests whose body or query names it.
IN_BODY: list[Request] = [
    ("POST", "/volumes", {"volume": {"size": 1, "source_volid": "{volume}"}}),
    ("POST", "/volumes", {"volume": {"snapshot_id": "{snapshot}"}}),
    ("POST", "/volumes", {"volume": {"size": 1, "volume_type": "{type}"}}),
    ("POST", "/snapshots", {"snapshot": {"volume_id": "{volume}"}}),
    ("POST", "/attachments", {"attachment": {"volume_uuid": "{volume}"}}),
    ("POST", "/attachments", {"attachment": {"volume_uuid": "{volume}", **_HOST}}),
    ("POST", "/os-volume-transfer", {"transfer": {"volume_id": "{volume}"}}),
    ("POST", "/volume-transfers", {"transfer": {"volume_id": "{volume}"}}),
    ("POST", "/manageable_snapshots", {"snapshot": _MANAGED}),
    ("POST", "/os-snapshot-manage", {"snapshot": _MANAGED}),
    ("POST", "/volumes/{own}/action", {"revert": {"snapshot_id": "{snapshot}"}}),
    ("POST", "/volumes/{own}/action", {"os-retype": {"new_type": "{type}"}}),
    ("POST", "/volumes/{own}/action", {"os-detach": {"attachment_id": "{attachment}"}}),
    (
        "POST",
        "/volumes/{own}/action",
        {"os-force_detach": {"attachment_id": "{attachment}"}},
    ),
    (
        "POST",
        "/scheduler-stats/explain",
        {"volume": {"size": 1, "volume_type": "{type}"}},
    ),
    ("GET", "/scheduler-stats/get_pools?volume_type={type}", None),
    ("GET", "/qos-specs/{qos}/associate?vol_type_id={type}", None),
    ("GET", "/qos-specs/{qos}/disassociate?vol_type_id={type}", None),
    *(
        ("GET", f"{path}?marker={{{kind}}}", None)
        for path, kind in (
            ("/volumes", "volume"),
            ("/volumes/detail", "volume"),
            ("/snapshots", "snapshot"),
            ("/snapshots/detail", "snapshot"),
            ("/attachments", "attachment"),
            ("/attachments/detail", "attachment"),
            ("/messages", "message"),
            ("/os-volume-transfer", "transfer"),
            ("/os-volume-transfer/detail", "transfer"),
            ("/volume-transfers", "transfer"),
            ("/volume-transfers/detail", "transfer"),
            ("/types", "type"),
        )
    ),
]

_OPERATED = "of the node, by role admin"
#: Routes with a variable in their path that no project owns.
UNOWNED = {
    "/os-volume-transfer/{id}/accept": "the key of the offer lets any project take it",
    "/volume-transfers/{id}/accept": "the key of the offer lets any project take it",
    "/default-types/{id}": "names a project",
    "/os-quota-sets/{id}": "names a project: 403 to another one",
    "/os-quota-sets/{id}/defaults": "names a project, and shows what all have",
    "/os-quota-class-sets/{id}": "names a class",
    "/extensions/{id}": "the same for everybody",
    "/clusters/{id}": _OPERATED,
    "/os-hosts/{id}": _OPERATED,
    "/capabilities/{host}": _OPERATED,
    "/qos-specs/{id}": _OPERATED,
    "/qos-specs/{id}/delete_keys": _OPERATED,
    "/qos-specs/{id}/associations": _OPERATED,
    "/qos-specs/{id}/associate": _OPERATED,
    "/qos-specs/{id}/disassociate": _OPERATED,
    "/qos-specs/{id}/disassociate_all": _OPERATED,
    "/lunshare/orphans/{kind}/{id}": _OPERATED,
    "/lunshare/fences/{host}": _OPERATED,
}
