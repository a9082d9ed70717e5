# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The forms of request bodies, and the sentences about what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lunshare.agent.api.requests import metadata_schemas, operator_schemas, schemas
from lunshare.agent.api.requests.forms import Form
from lunshare.agent.model.errors import Invalid

NAMES = {**vars(schemas), **vars(operator_schemas)}
FORMS = {name: form for name, form in NAMES.items() if isinstance(form, Form)}
ID = "11111111-1111-1111-1111-111111111111"
CONNECTOR = {"initiator": "iqn.1994-05.com.example:h", "host": "h"}


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema, itself included."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "patternProperties"):
        for inner in schema.get(key, {}).values():
            yield from _nodes(inner)
    for key in ("additionalProperties", "propertyNames", "then", "else"):
        yield from _nodes(schema.get(key))


@pytest.mark.parametrize("name", FORMS)
def test_every_schema_is_valid_and_every_part_has_a_description(name: str):
    for schema in FORMS[name].schemas.values():
        Draft202012Validator.check_schema(schema)
        for node in _nodes(schema):
            assert node["description"], node


def refused(form: Form, body: Any, version: tuple[int, int] = (3, 71)) -> str:
    with pytest.raises(Invalid) as caught:
        form.check(body, version)
    message = caught.value.message
    assert len(message) <= 400
    return message


#: Bodies that may have no key.
EMPTY = {"GET_LOG", "CLEANUP"}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("body", [None, [], "x", 1, True, {}], ids=str)
def test_a_body_of_the_wrong_shape_is_refused(name: str, body: Any):
    if body == {} and name in EMPTY:
        FORMS[name].check(body, (3, 71))
        return
    assert refused(FORMS[name], body)


def test_the_sentence_names_the_field_and_what_to_give():
    form = schemas.VOLUME_CREATE
    size = "give a whole number of GiB, 1 or more."
    begins = "Invalid input for field/attribute"
    assert refused(form, {"volume": {"size": 1.5}}) == (
        f"{begins} size. Value: 1.5. volume.size: {size}"
    )
    assert refused(form, {"volume": {"size": 1, "name": "x" * 9000}}) == (
        f"{begins} name. Value: {'x' * 64}.... volume.name: give a text of 0 to 255"
        " characters."
    )
    assert refused(form, {"volume": {"size": 1, "colour": 1}}) == (
        f"{begins} volume. Value: {{...}}. volume.colour is unknown here: leave it out."
    )
    assert refused(form, {}) == "volume: give an object with size."


def test_the_sentence_has_no_secret():
    for body in ({"auth_key": 4711}, {"auth_key": "", "other": "4711"}, ["4711"]):
        assert "4711" not in refused(metadata_schemas.TRANSFER_ACCEPT, {"accept": body})


def test_the_sentence_never_repeats_a_huge_value_or_key():
    huge = "x" * 10_000
    for body in (
        {"volume": {"size": huge, "name": huge, "metadata": {"a": huge}}},
        {"volume": {"size": 1, huge: 1}},
        {"volume": {"size": 1, "metadata": {huge: "v"}}},
        {huge: 1},
    ):
        assert "x" * 65 not in refused(schemas.VOLUME_CREATE, body)


@pytest.mark.parametrize("size", [True, 1.0, 1.5, [1], {}])
def test_a_size_is_an_integer_or_a_text(size: Any):
    assert "volume.size" in refused(schemas.VOLUME_CREATE, {"volume": {"size": size}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "x" * 256),
        ("name", 1),
        ("display_name", "x" * 256),
        ("description", "x" * 256),
        ("metadata", []),
        ("metadata", {"a": 1}),
        ("metadata", {"a": None}),
        ("metadata", {"a": "x" * 256}),
        ("metadata", {"": "x"}),
        ("metadata", {"x" * 256: "x"}),
        ("volume_type", 1),
        ("availability_zone", {}),
        ("multiattach", 1),
        ("snapshot_id", 1),
    ],
)
def test_an_invalid_volume_field_is_named(field: str, value: Any):
    asked = {"volume": {"size": 1, field: value}}
    assert f"volume.{field}" in refused(schemas.VOLUME_CREATE, asked)


def test_unknown_volume_fields_are_refused_only_from_3_53_on():
    for asked in (
        {"volume": {"size": 1, "attach_status": "detached"}},
        {"volume": {"size": 1}, "other": {}},
    ):
        schemas.VOLUME_CREATE.check(asked, (3, 52))
        assert "leave it out" in refused(schemas.VOLUME_CREATE, asked, (3, 53))


def test_scheduler_hints_are_accepted():
    asked = {"volume": {"size": 1}, "OS-SCH-HNT:scheduler_hints": {"a": "b"}}
    schemas.VOLUME_CREATE.check(asked, (3, 71))


def test_an_update_without_a_change_is_refused_from_3_53_on():
    schemas.VOLUME_UPDATE.check({"volume": {}}, (3, 52))
    assert refused(schemas.VOLUME_UPDATE, {"volume": {}}, (3, 53)) == (
        "Invalid input for field/attribute volume. Value: {}. volume: give an object"
        " with name or display_name or description or display_description or metadata."
    )
    for version in ((3, 0), (3, 71)):
        asked = {"volume": {"size": 2}}
        assert "volume.size" in refused(schemas.VOLUME_UPDATE, asked, version)


@pytest.mark.parametrize(
    "extra",
    [{}, {"connector": None}, {"connector": {}}, {"connector": CONNECTOR}],
    ids=["none", "null", "empty", "complete"],
)
def test_an_attachment_may_have_a_connector(extra: dict[str, Any]):
    asked = {"attachment": {"volume_uuid": ID, "instance_uuid": ID, **extra}}
    schemas.ATTACHMENT_CREATE.check(asked, (3, 27))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("volume_uuid", "x"),
        ("volume_uuid", ID + "\n"),
        ("volume_uuid", ID.replace("-", "")),
        ("volume_uuid", 1),
        ("instance_uuid", None),
        ("instance_uuid", ""),
        ("connector", []),
        ("connector", "iqn"),
        ("connector", {"initiator": "iqn"}),
        ("connector", {"host": "", "initiator": "iqn"}),
        ("connector", {"host": "h", "initiator": 1}),
        ("connector", {"host": "h", "initiator": ["iqn"]}),
        ("mode", "wr"),
        ("mode", "RW"),
        ("mode", None),
        ("mode", 1),
        ("status", "attached"),
    ],
)
def test_an_invalid_attachment_field_is_named(field: str, value: Any):
    asked = {"attachment": {"volume_uuid": ID, field: value}}
    assert f"attachment.{field}" in refused(schemas.ATTACHMENT_CREATE, asked)


def test_a_missing_name_in_a_connector_is_named():
    asked: Any = {"attachment": {"connector": {"host": "h", "initiator": 1}}}
    assert ". attachment.connector.initiator: give the host's iSCSI name" in refused(
        schemas.ATTACHMENT_UPDATE, asked
    )
    asked = {"attachment": {"connector": {"initiator": "iqn"}}}
    assert refused(schemas.ATTACHMENT_UPDATE, asked).endswith(
        ". attachment.connector.host: give the host's name."
    )


@pytest.mark.parametrize("connector", [None, {}, []])
def test_an_update_needs_a_connector(connector: Any):
    asked = {"attachment": {"connector": connector}}
    assert "connector" in refused(schemas.ATTACHMENT_UPDATE, asked)


def test_a_mode_exists_from_3_54_on():
    asked = {"attachment": {"volume_uuid": ID, "mode": "ro"}}
    schemas.ATTACHMENT_CREATE.check(asked, (3, 54))
    assert refused(schemas.ATTACHMENT_CREATE, asked, (3, 53)) == (
        "Invalid input for field/attribute attachment. Value: {...}. attachment.mode is"
        " unknown here: leave it out."
    )


@pytest.mark.parametrize("value", [None, {}, ID])
def test_an_action_has_one_key_and_its_value_is_ignored(value: Any):
    schemas.ATTACHMENT_ACTION.check({"os-complete": value}, (3, 44))
    for body in ({"os-destroy": value}, {"os-complete": value, "os-destroy": value}):
        assert refused(schemas.ATTACHMENT_ACTION, body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "   "),
        ("name", "x" * 256),
        ("name", None),
        ("extra_specs", {"a": 1}),
        ("extra_specs", []),
        ("os-volume-type-access:is_public", 1),
        ("colour", "red"),
    ],
)
def test_an_invalid_type_field_is_named(field: str, value: Any):
    asked = {"volume_type": {"name": "x", field: value}}
    assert f"volume_type.{field}" in refused(schemas.TYPE_CREATE, asked)
