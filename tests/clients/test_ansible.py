# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's modules for Block Storage, in two plays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lunshare.agent.api import missing_features
from tests.clients import pins
from tests.clients.node import Node
from tests.clients.record import Entry, Record

VOLUMES = Path(__file__).with_name("volumes.yml")
#: Its modules ask Keystone for a project.
ACCESS = Path(__file__).with_name("access.yml")
PREFIX = "openstack.cloud."
SENTENCES = {"backups": missing_features.PATHS["/v3/backups"].sentence}


@pytest.mark.timeout(1200)  # two minutes; on a busy machine more than five
def test_the_plays_end_without_a_failed_task(node: Node, record: Record):
    strategy = node.caller.strategy
    for play in (VOLUMES, ACCESS) if strategy == "keystone" else (VOLUMES,):
        done = run(node, play)
        assert done.returncode == 0, done.stdout + done.stderr
        for entry in entries(play, strategy):
            record.add(entry)


def run(node: Node, play: Path) -> subprocess.CompletedProcess[str]:
    """The end of ansible-playbook."""
    venv = pins.ansible()
    ansible = [venv / "bin/python", "-m", "ansible", "playbook"]
    words = [*ansible, play, "-e", json.dumps(SENTENCES)]
    python = f"ansible_python_interpreter={venv / 'bin/python'}"
    environ = pins.environ(
        **node.environ(node.strategy.environ),
        ANSIBLE_COLLECTIONS_PATH=str(pins.collections()),
        ANSIBLE_HOME=str(node.path / "ansible"),
        ANSIBLE_LOCALHOST_WARNING="false",
        ANSIBLE_INVENTORY_UNPARSED_WARNING="false",
    )
    return subprocess.run(
        [str(word) for word in (*words, "-e", python)],
        env=environ,
        cwd=node.path,
        capture_output=True,
        text=True,
        check=False,
    )


def entries(path: Path, strategy: str) -> list[Entry]:
    """What a play has done, by its own text."""
    (play,) = yaml.safe_load(path.read_text())
    return [entry for task in play["tasks"] for entry in _entry(task, strategy)]


def _entry(task: dict[str, Any], strategy: str) -> list[Entry]:
    modules = [key.removeprefix(PREFIX) for key in task if key.startswith(PREFIX)]
    named = task.get("vars", {}).get("refused", "").strip("{} ")
    sentence = SENTENCES[named] if named else ""
    return [Entry("ansible", module, strategy, sentence) for module in modules]
