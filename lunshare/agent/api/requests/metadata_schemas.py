# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of metadata, and of transfers.

https://docs.openstack.org/api-ref/block-storage/v3/
"""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.requests.forms import Form, Schema
from lunshare.agent.api.requests.schema_parts import (
    BOOLEAN,
    UUID,
    object_of,
    text,
    texts,
)

METADATA = Form(
    {microversions.MIN: object_of({"metadata": texts(null=False)}, ("metadata",))}
)

#: One item under its own key.
METADATA_ITEM = Form(
    {
        microversions.MIN: object_of(
            {"meta": {**texts(null=False), "minProperties": 1, "maxProperties": 1}},
            ("meta",),
        )
    }
)


def _transfer(**more: Schema) -> Schema:
    fields = {"volume_id": UUID, "name": text(), **more}
    return object_of({"transfer": object_of(fields, ("volume_id",))}, ("transfer",))


TRANSFER_CREATE = Form(
    {
        microversions.MIN: _transfer(),
        microversions.TRANSFER_SNAPSHOTS: _transfer(no_snapshots=BOOLEAN),
    }
)

TRANSFER_ACCEPT = Form(
    {
        microversions.MIN: object_of(
            {"accept": object_of({"auth_key": text(1, null=False)}, ("auth_key",))},
            ("accept",),
        )
    }
)
