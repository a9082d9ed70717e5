# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Policy files that change or become wrong while requests are decided."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_policy import opts

from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.errors import StartupError
from lunshare.agent.records import RequestContext

CTX = RequestContext("u", "p", False, "r", ("member", "reader"))
RULE = "volume:get"


def loaded(file: Path, text: str) -> AccessRules:
    file.write_text(text)
    conf = cfg.ConfigOpts()
    conf([], project="lunshare")
    opts._register(conf)
    # Not set_defaults: that changes the option of every configuration in this process.
    conf.set_override("policy_file", str(file), "oslo_policy")
    return AccessRules(conf)


class ReloadsAfter:
    """A lock; once, new rules are loaded when a decision has given it back."""

    def __init__(self, rules: AccessRules, file: Path) -> None:
        self.rules, self.file = rules, file
        self.lock, self.used = threading.Lock(), False

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        if not self.used:
            self.used = True
            self.file.write_text(f'"{RULE}": "role:admin"\n')
            self.rules._next = 0.0
            assert not self.rules.allows(RULE, RequestContext("v", "p", False, "r"))


def test_what_former_rules_allowed_is_not_remembered(tmp_path: Path):
    rules = loaded(tmp_path / "policy.yaml", f'"{RULE}": "@"\n')
    rules._lock = ReloadsAfter(rules, tmp_path / "policy.yaml")  # type: ignore[assignment]
    rules.allows(RULE, CTX)
    assert not rules.allows(RULE, CTX)


@pytest.mark.parametrize(
    "text",
    [
        f'"a": "rule:b"\n"b": "rule:a"\n"{RULE}": "rule:a"\n',
        f'"{RULE}": 2001-99-99\n',
        "[" * 1000,
    ],
)
def test_a_file_that_cannot_be_a_policy_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "policy.yaml"
    with pytest.raises(StartupError, match="policy file"):
        loaded(file, text)
    rules = loaded(file, f'"{RULE}": "!"\n')
    file.write_text(text)
    rules._next = 0.0
    assert not rules.allows(RULE, CTX)
