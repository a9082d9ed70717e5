# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock cinder-scheduler places volumes by what the driver reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.api import SHARED
from tests.fleet.stack import FUNCTIONS, OTHER, THICK, THIN, Stack
from tests.stands.waiting import until

OURS = {"vendor_name": "lunshare"}
NOBODY = None


def say(*words: object) -> None:
    """Print a line of the transcript."""
    print("  ", *words, flush=True)


@pytest.fixture
def working_again(stack: Stack) -> Iterator[None]:
    yield
    stack.release()
    until(lambda: free(stack, THICK) > 0, "its space is reported again")


def placed(client: Client, specs: Mapping[str, str], size: int = 1) -> str | None:
    """Create a volume of such a type, and delete it; the backend that had it."""
    name = ",".join(f"{key}={value}" for key, value in specs.items()) or "anything"
    asked = {"size": size, "volume_type": api.volume_type(client, name, specs)}
    volume_id = client("POST", "/volumes", {"volume": asked})["volume"]["id"]
    api.reaches(client, volume_id, "available", "error")
    volume = api.show(client, volume_id)
    if volume["status"] == "error":
        assert "find any available weighted backend" in reasons(client, volume_id)
    api.delete(client, volume_id)
    host = volume["os-vol-host-attr:host"]
    return host and str(host).rpartition("#")[2]


def reasons(client: Client, volume_id: str) -> str:
    """What Cinder's user messages say about a volume."""
    path = f"/messages?resource_uuid={volume_id}"

    def texts() -> list[str]:
        return [each["user_message"] for each in client("GET", path)["messages"]]

    until(texts, f"there is a message about {volume_id}")
    return " ".join(texts())


def pool(stack: Stack, backend: str) -> dict[str, Any]:
    """The stats that the scheduler has of a backend's pool."""
    return stack.pools()[f"node@{backend}#{backend}"]


def free(stack: Stack, backend: str) -> float:
    """The free space that the scheduler knows, in GiB."""
    return float(pool(stack, backend)["free_capacity_gb"])


def test_scheduler_knows_what_both_backends_can_do(stack: Stack) -> None:
    for backend, thin, total in ((THIN, True, 1000), (THICK, False, 20)):
        found = pool(stack, backend)
        assert found["vendor_name"] == "lunshare"
        assert found["storage_protocol"] == "iSCSI"
        assert found["total_capacity_gb"] == total
        assert found["backend_state"] == "up"
        assert found["thin_provisioning_support"] is thin
        assert found["thick_provisioning_support"] is not thin
        for ability in ("multiattach", "enforces_read_only", "fences"):
            assert found[ability] is True
    assert {key: pool(stack, THICK)[key] for key in FUNCTIONS} == FUNCTIONS


@pytest.mark.parametrize(
    ("specs", "size", "backend"),
    [
        ({}, 1, OTHER),
        ({"multiattach": "<is> False"}, 1, OTHER),
        (SHARED, 1, THIN),
        (OURS, 1, THIN),
        ({"capabilities:enforces_read_only": "<is> True"}, 1, THIN),
        ({**SHARED, "thick_provisioning_support": "<is> True"}, 1, THICK),
        ({**SHARED, "volume_backend_name": THICK}, 21, NOBODY),
        ({**SHARED, "volume_backend_name": OTHER}, 1, NOBODY),
        ({**OURS, "storage_protocol": "nfs"}, 1, NOBODY),
        (SHARED, 15_000, THIN),  # twenty times the free space may be promised
        (SHARED, 21_000, NOBODY),
    ],
)
def test_volume_is_placed_by_capabilities_and_space(
    client: Client, specs: Mapping[str, str], size: int, backend: str | None
) -> None:
    found = placed(client, specs, size)
    say(f"{size} GiB of type {dict(specs)}: {found or 'nowhere'}")
    assert found == backend


def test_backend_whose_storage_fails_gets_no_volume_until_it_works(
    stack: Stack, client: Client, working_again: None
) -> None:
    thick = {**SHARED, "volume_backend_name": THICK}
    stack.fail(THICK, "check", 1000)
    until(lambda: free(stack, THICK) == 0, "the scheduler knows")
    assert pool(stack, THICK)["backend_state"] == "down"
    assert placed(client, thick) is NOBODY
    assert placed(client, SHARED) == THIN
    stack.release()
    until(lambda: free(stack, THICK) > 0, "the scheduler knows")
    assert placed(client, thick) == THICK
    say("storage fails: no space there, and no volume, until it works again")
