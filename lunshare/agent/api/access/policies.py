# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who may do what: the one table of rules, with the names that Cinder 29 uses.

A rule names the operations that it decides on: routes by method and path, actions by
method, path and name. policy.yaml may replace a rule's check. The target of every
check is the project of the request, since what belongs to another project is 404 to
everyone but administrators before a rule is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from lunshare.agent.api.access import node_policies, project_policies
from lunshare.agent.api.access.policy_checks import ADMIN, NAMED

#: Of a route without a line in this table, which a test refuses.
UNDECLARED = "lunshare:undeclared"

_RULES = (*project_policies.RULES, *node_policies.RULES)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule; the entry point ``oslo.policy.policies``."""
    named = [
        policy.RuleDefault(name, check, description=text) for name, check, text in NAMED
    ]
    undeclared = policy.RuleDefault(UNDECLARED, ADMIN, "What this table forgot.")
    return [*named, undeclared, *_documented()]


def get_enforcer() -> policy.Enforcer:
    """Return the rules with the policy.yaml of /etc/lunshare; for oslopolicy-*.

    It is the entry point ``oslo.policy.enforcer``.
    """
    conf = cfg.ConfigOpts()
    conf([], project="lunshare")
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    return enforcer


def rule_of(method: str, path: str, action: str | None = None) -> str:
    """Return the rule of a route, or of an action of it."""
    named = f"{method} {path}" + (f" ({action})" if action else "")
    return _BY_OPERATION.get(named, UNDECLARED)


def _documented() -> Iterator[policy.DocumentedRuleDefault]:
    for name, check, text, operations in _RULES:
        pairs = (operation.split(" ", 1) for operation in operations)
        listed: Any = [{"method": method, "path": path} for method, path in pairs]
        yield policy.DocumentedRuleDefault(name, check, text, listed)


_BY_OPERATION = {
    operation: name for name, _, _, operations in _RULES for operation in operations
}
