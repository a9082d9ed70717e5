# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The one place with the versions of the clients, each set installed once."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from tests.lab import cache
from tests.lab.steps import sh, step
from tests.stands import installed

CINDERCLIENT = "python-cinderclient==9.10.0"
OPENSTACKCLIENT = "python-openstackclient==10.5.0"
SDK = "openstacksdk==4.22.0"
ANSIBLE_CORE = "ansible-core==2.19.14"
NOVA = "nova==34.0.0"
#: The collection reads openstack.version, which newer ones import no more.
ANSIBLE_SDK = "openstacksdk==4.8.0"
#: Many collections; only the one for OpenStack is unpacked.
ANSIBLE = "ansible==12.3.0"
_COLLECTION = "ansible_collections/openstack/cloud/"


def clients() -> Path:
    """The venv of the commands and the SDK."""
    return installed.venv("clients-here", (CINDERCLIENT, OPENSTACKCLIENT, SDK))


def ansible() -> Path:
    """The venv of Ansible, without its collections."""
    return installed.venv("ansible-here", (ANSIBLE_CORE, ANSIBLE_SDK))


def nova() -> Path:
    """The venv of Nova."""
    return installed.venv("nova-here", (NOVA,))


def collections() -> Path:
    """The directory in which Ansible finds the collection openstack.cloud."""

    def build(out: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps"]
        with step(f"unpack openstack.cloud of {ANSIBLE} (once)"):
            sh([*pip, "--dest", out, ANSIBLE])
            (wheel,) = out.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
                archive.extractall(out, [n for n in names if n.startswith(_COLLECTION)])
            wheel.unlink()

    return cache.entry("ansible-collection", [ANSIBLE, _COLLECTION], build)


def environ(**more: str) -> dict[str, str]:
    """An environment without this repository and without anybody's cloud."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith(("OS_", "CINDER_"))
    }
    return kept | more
