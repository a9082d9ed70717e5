# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Decide whether a request may do something, with oslo.policy and policy.yaml.

The target of every check is the project of the request, so a decision depends only
on the rule and on who asks. It is remembered until a policy file changes.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from oslo_config import cfg
from oslo_log import log
from oslo_policy import _parser, policy

from lunshare.agent.api import outside, policies
from lunshare.agent.api.routes import Route
from lunshare.agent.errors import Forbidden, Invalid, StartupError
from lunshare.agent.records import RequestContext

LOG = log.getLogger(__name__)

_CHECK_SECONDS = 1.0  # between two checks of the files
_REMEMBERED_MAX = 10_000
_REFERENCE = re.compile(r"rule:([^\s()]+)")

Marks = tuple[tuple[str, int, int], ...]
Key = tuple[Any, ...]


class AccessRules:
    """The rules that are in force now."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Read the policy files, if there are any.

        :raises StartupError: names the file and the line that is wrong.
        """
        self._conf = conf
        self._lock = threading.Lock()
        self._remembered: dict[Key, bool] = {}
        self._enforcer = _load(conf)
        self._marks = _file_state(conf)
        self._next = time.monotonic() + _CHECK_SECONDS

    def require(self, rule: str, ctx: RequestContext) -> None:
        """:raises Forbidden: the rule does not allow it."""
        if not self.allows(rule, ctx):
            raise Forbidden(rule)

    def require_route(
        self, route: Route, ctx: RequestContext, body: Callable[[], Any]
    ) -> None:
        """Check the rule of a route; of an action, which its body names.

        :raises Forbidden: the rule does not allow it.
        :raises Invalid: no action has that name.
        """
        path = route.path.removeprefix("/v3")
        if not path.endswith("/action"):
            return self.require(policies.rule_of(route.method, path), ctx)
        sent = body()
        name = next(iter(sent), None) if isinstance(sent, dict) else None
        outside.check_action(str(name))
        rule = policies.rule_of(route.method, path, str(name))
        if rule != policies.UNDECLARED:
            return self.require(rule, ctx)
        if not self.allows(rule, ctx):
            raise Invalid("The body: give the name of an action as its only key.")
        return None  # the handler says which actions there are

    def allows(self, rule: str, ctx: RequestContext) -> bool:
        """Return whether the rule allows it in the project of the request."""
        self._refresh()
        key = (
            *(rule, ctx.user_id, ctx.project_id, ctx.roles),
            *(ctx.is_admin, ctx.service_roles, ctx.system_scope),
        )
        # Another thread may load new rules meanwhile, which get a new dict: what the
        # former rules decided must not be in that.
        remembered = self._remembered
        known = remembered.get(key)
        if known is None:
            known = self._ask(rule, ctx)
            if len(remembered) >= _REMEMBERED_MAX:
                remembered.clear()
            remembered[key] = known
        return known

    def is_admin(self, ctx: RequestContext) -> bool:
        """Return whether it is an administrator of all projects."""
        return self.allows("context_is_admin", ctx)

    def _ask(self, rule: str, ctx: RequestContext) -> bool:
        target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
        who = target | {
            "roles": list(ctx.roles),
            "is_admin": ctx.is_admin,
            "is_admin_project": True,
            "service_roles": list(ctx.service_roles),
            "system_scope": ctx.system_scope,
        }
        with self._lock:  # oslo.policy loads files while it decides
            return bool(self._enforcer.authorize(rule, target, who))

    def _refresh(self) -> None:
        """Read the files again if they have changed. Errors keep the former rules."""
        moment = time.monotonic()
        if moment < self._next:
            return
        self._next = moment + _CHECK_SECONDS
        marks = _file_state(self._conf)
        if marks == self._marks:
            return
        self._marks = marks
        try:
            enforcer = _load(self._conf)
        except StartupError as error:
            LOG.error("[policy] reload failed, the former rules stay: %s", error)
            return
        with self._lock:
            self._enforcer, self._remembered = enforcer, {}
        LOG.info("[policy] loaded: %s", ", ".join(name for name, _, _ in marks))


def _load(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer with the files as they are now, which it reads once."""
    for file in _files(conf):
        _check(file)
    enforcer = policy.Enforcer(conf)
    enforcer.suppress_default_change_warnings = True
    enforcer.register_defaults(policies.list_rules())
    enforcer.load_rules()
    try:
        enforcer.check_rules(raise_on_violation=True)
    except policy.InvalidDefinitionError as error:
        raise StartupError(
            f"policy files: {error}: no rule may need itself, and each that is named"
            " must exist"
        ) from None
    enforcer.use_conf = False  # _refresh decides when files are read again
    return enforcer


def _files(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the policy files that exist, in the order in which they are read."""
    found = []
    main = conf.find_file(conf.oslo_policy.policy_file)
    if main:
        found.append(Path(main))
    for name in conf.oslo_policy.policy_dirs:
        folder = conf.find_file(name)
        if folder:
            found += sorted(each for each in Path(folder).iterdir() if each.is_file())
    return found


def _file_state(conf: cfg.ConfigOpts) -> Marks:
    marks = []
    for file in _files(conf):
        try:
            known = os.stat(file)
        except OSError:
            continue
        marks.append((str(file), known.st_mtime_ns, known.st_size))
    return tuple(marks)


def _check(file: Path) -> None:
    """:raises StartupError: a rule of the file does not exist, or is not valid."""
    try:
        text = file.read_text(encoding="utf-8")
        rules = yaml.safe_load(text) or {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        where = getattr(error, "problem_mark", None)
        place = f", line {where.line + 1}" if where else ""
        raise StartupError(
            f"policy file {file}{place} cannot be read: give UTF-8 and YAML"
        ) from None
    if not isinstance(rules, dict):
        raise StartupError(
            f"policy file {file} is not a mapping: give lines as in"
            ' "volume:create": "role:member"'
        )
    defaults = {rule.name for rule in policies.list_rules()}
    used = set(_references(rules))
    for name, check in rules.items():
        line = _line(text, str(name))
        if name not in used | defaults:
            raise StartupError(
                f"policy file {file}, line {line}: there is no rule {name!r}: see"
                " oslopolicy-sample-generator --namespace lunshare"
            )
        _check_one(
            f"policy file {file}, line {line}", name, check, defaults | set(rules)
        )


def _check_one(where: str, name: object, check: object, known: set[str]) -> None:
    if not isinstance(check, str | list) and check is not None:
        raise StartupError(f"{where}: the check of {name!r} must be a text")
    for other in _references({name: check}):
        if other not in known:
            raise StartupError(f"{where}: {name!r} names rule {other!r}, which is none")
    if check is None or check == "!":
        return
    if str(_parser.parse_rule(check)) == "!":
        raise StartupError(f"{where}: {check!r} is not a check that oslo.policy knows")


def _references(rules: dict[Any, Any]) -> Iterator[str]:
    for check in rules.values():
        yield from _REFERENCE.findall(str(check))


def _line(text: str, name: str) -> int:
    """Return the line in which a rule begins."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().strip("\"'").startswith(name):
            return number
    return 1
