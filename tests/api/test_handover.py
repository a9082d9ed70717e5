# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The action lunshare:handover, and what anybody can read of it later."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.errors import DeadlineExceeded
from tests.api.calls import Api
from tests.stands.node import Node, connector


def attached(api: Api, volume_id: str, host: str, mode: str) -> str:
    fields = {"volume_uuid": volume_id, "connector": connector(host), "mode": mode}
    return str(api("POST", "/attachments", {"attachment": fields})["attachment"]["id"])


def test_the_answer_is_the_proof_and_can_be_read_later(api: Api, node: Node):
    shared = api.type(multiattach="<is> True")["id"]
    volume_id = api.volume(volume_type=shared)["id"]
    alpha = attached(api, volume_id, "alpha", "rw")
    beta = attached(api, volume_id, "beta", "ro")
    path, read = f"/volumes/{volume_id}/action", f"/volumes/{volume_id}/handover"
    assert api("GET", read)["handover"] is None
    body: dict[str, Any] = {"lunshare:handover": {"to": beta}}
    hangs = DeadlineExceeded("a write in progress", 1.0)
    with node.target("api").failures.fail("apply.closed", hangs):
        pending = api("POST", path, body, status=202)
    assert pending["handover"]["status"] == "fence pending"
    done = api("POST", path, body, status=202)
    assert done["fencing_generation"] == 1
    assert (done["handover"]["status"], done["handover"]["from"]) == ("done", [alpha])
    assert api("GET", read) == done
    assert api("GET", f"/attachments/{beta}")["attachment"]["attach_mode"] == "rw"
    assert "does not have volume" in api.fault(409, "POST", path, body)
    wrong = {"lunshare:handover": {"from": alpha}}
    assert "lunshare:handover.to" in api.fault(400, "POST", path, wrong)
