# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Policy files that change or become wrong while requests are decided."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_policy import _checks, opts

from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.model.errors import StartupError
from lunshare.agent.model.records import RequestContext

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


def test_decisions_of_former_rules_are_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """New rules are loaded by another request while the former ones decide."""
    file = tmp_path / "policy.yaml"
    decided = []

    class Reloads(_checks.Check):
        def __call__(self, target, creds, enforcer, current_rule=None) -> bool:
            decided.append(current_rule)
            file.write_text(f'"{RULE}": "role:admin"\n')
            rules._watch.force()
            assert not rules.allows(RULE, RequestContext("v", "p", False, "r"))
            return True

    monkeypatch.setitem(_checks.registered_checks, "reloads", Reloads)
    rules = loaded(file, f'"{RULE}": "reloads:now"\n')
    assert rules.allows(RULE, CTX)
    assert not rules.allows(RULE, CTX)
    assert decided == [RULE]


@pytest.mark.parametrize(
    "text",
    [
        f'"a": "rule:b"\n"b": "rule:a"\n"{RULE}": "rule:a"\n',
        f'"{RULE}": 2001-99-99\n',
        f'"{RULE}": "role:admin"\n"{RULE}": "@"\n',
        "[" * 1000,
        f'"{RULE}":\n',
        f'"{RULE}": ""\n',
        f'"{RULE}": " "\n',
        f'"{RULE}": []\n',
        f'"{RULE}": [[]]\n',
        f'"{RULE}": [""]\n',
        f'"{RULE}": {{}}\n',
        f'"{RULE}": false\n',
        f'"{RULE}": "rule:mine"\n"mine":\n',
        f'"{RULE}": "rule:mine"\n"mine": ""\n',
    ],
)
def test_a_file_that_cannot_be_a_policy_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "policy.yaml"
    with pytest.raises(StartupError, match="policy file"):
        loaded(file, text)
    rules = loaded(file, f'"{RULE}": "!"\n')
    file.write_text(text)
    rules._watch.force()
    assert not rules.allows(RULE, CTX)
