# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""openstacksdk: types, QoS, quotas, services, messages."""

from __future__ import annotations

from tests.clients.library import Library
from tests.clients.node import HOST, Node, host
from tests.stands.waiting import until

SERVICE = f"{HOST}@first"


def test_types_have_specs_and_access(sdk: Library):
    made = sdk.create_type(name="kind", is_public=False)["id"]
    sdk.update_type(made, name="sort")
    sdk.update_type_extra_specs(made, **{"multiattach": "<is> True", "a:b": "c"})
    sdk.delete_type_extra_specs(made, ["a:b"])
    assert sdk.get_type(made)["extra_specs"] == {"multiattach": "<is> True"}
    assert sdk.find_type("sort")["id"] == made
    assert "sort" in [row["name"] for row in sdk.types(is_public="none")]
    sdk.add_type_access(made, "other")
    assert [row["project_id"] for row in sdk.get_type_access(made)] == ["other"]
    sdk.remove_type_access(made, "other")
    assert sdk.get_type_encryption(made)["encryption_id"] is None
    sdk.delete_type(made)


def test_types_are_encrypted(sdk: Library):
    made = sdk.create_type(name="secret")["id"]
    where = {"control_location": "front-end", "key_size": 256}
    sdk.create_type_encryption(made, provider="luks", **where)
    found = sdk.get_type_encryption(made)
    assert (found["provider"], found["key_size"]) == ("luks", 256)
    sdk.update_type_encryption(volume_type=made, provider="luks2")
    assert sdk.get_type_encryption(made)["provider"] == "luks2"
    sdk.fails("encrypted", "create_volume", size=1, volume_type="secret")
    sdk.delete_type_encryption(volume_type=made)
    assert sdk.get_type_encryption(made)["encryption_id"] is None
    sdk.delete_type(made)


def test_a_project_has_a_default_type(sdk: Library, node: Node):
    own = node.caller.project
    made = sdk.create_type(name="usual")["id"]
    sdk.set_default_type(own, made)
    assert sdk.show_default_type(own)["volume_type_id"] == made
    assert [row["project_id"] for row in sdk.default_types()] == [own]
    sdk.unset_default_type(own)
    sdk.delete_type(made)


def test_qos_specs_are_associated_with_types(sdk: Library):
    kind = sdk.create_type(name="limited")["id"]
    made = sdk.create_qos_spec(name="q", consumer="front-end", read_iops_sec="100")
    ident = made["id"]
    sdk.update_qos_spec(ident, write_iops_sec="50")
    sdk.delete_qos_spec_metadata(ident, ["read_iops_sec"])
    assert sdk.find_qos_spec("q")["id"] == ident
    assert [row["id"] for row in sdk.qos_specs()] == [ident]
    sdk.associate_qos_spec(ident, kind)
    assert [row["id"] for row in sdk.qos_spec_associations(ident)] == [kind]
    sdk.disassociate_qos_spec(ident, kind)
    sdk.disassociate_all_qos_spec(ident)
    assert sdk.get_qos_spec(ident)["specs"] == {"write_iops_sec": "50"}
    sdk.delete_qos_spec(ident)


def test_quotas_and_limits_are_shown_and_changed(sdk: Library):
    assert sdk.update_quota_set("other", volumes=7)["volumes"] == 7
    assert sdk.get_quota_set("other", usage=True)["volumes"] == 7
    sdk.revert_quota_set("other")
    assert sdk.get_quota_set_defaults("other")["volumes"] == -1
    sdk.update_quota_class_set("default", snapshots=9)
    assert sdk.get_quota_class_set("default")["snapshots"] == 9
    sdk.update_quota_class_set("default", snapshots=-1)
    assert sdk.get_limits()["absolute"]["max_total_volumes"] == -1


def test_services_are_disabled_frozen_and_listed(sdk: Library):
    (found,) = sdk.services(host=SERVICE, binary="cinder-volume")
    assert found["status"] == "enabled"
    named = ("cinder-volume",), {"host": SERVICE}
    assert sdk.find_service(*named[0], **named[1])["host"] == SERVICE
    for method in ("disable", "enable", "freeze", "thaw"):
        getattr(sdk, f"{method}_service")({"found": ("find_service", *named)})
    sdk.set_service_log_levels(level="DEBUG", binary="cinder-volume")
    levels = sdk.get_service_log_levels(binary="cinder-volume")
    assert levels[0]["binary"] == "cinder-volume"
    sdk.set_service_log_levels(level="INFO")


def test_pools_zones_and_extensions_are_listed(sdk: Library):
    assert {p["name"] for p in sdk.backend_pools()} == {host("first"), host("second")}
    assert sdk.get_capabilities(SERVICE)["vendor_name"]
    assert [zone["name"] for zone in sdk.availability_zones()] == ["nova"]
    assert "volume" in [row["resource"] for row in sdk.resource_filters()]
    assert sdk.clusters() == []
    assert sdk.find_cluster("none") is None
    sdk.extensions()


def test_messages_say_why_a_volume_failed(sdk: Library):
    kind = sdk.create_type(name="nowhere")["id"]
    sdk.update_type_extra_specs(kind, volume_backend_name="none")
    ident = sdk.create_volume(size=1, volume_type="nowhere")["id"]
    until(lambda: sdk.get_volume(ident)["status"] == "error", "error")
    (row,) = sdk.messages()
    assert "no backend can hold" in row["user_message"]
    sdk.delete_message(row["id"])
    assert sdk.messages() == []
    sdk.delete_volume(ident)
