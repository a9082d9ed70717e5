# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Decide whether a request may do something, with oslo.policy and policy.yaml.

The target of every check is the project of the request, so a decision depends only
on the rule and on who asks. It is remembered until a policy file changes; what a
policy server has decided, for a second, so that a page asks it once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cachetools import Cache, LRUCache, TTLCache
from oslo_config import cfg
from oslo_log import log
from oslo_policy import _checks, _parser, policy

from lunshare.agent.api import missing_features, policies
from lunshare.agent.api.access.remote_checks import (
    REFERENCE,
    RemoteChecks,
    remote_rules,
)
from lunshare.agent.api.faults import Fault
from lunshare.agent.api.routes import Route
from lunshare.agent.model.errors import Forbidden, Invalid, StartupError
from lunshare.agent.model.records import RequestContext
from lunshare.agent.trusted_files import trust_problem
from lunshare.agent.watched_files import WatchedFiles

LOG = log.getLogger(__name__)

_CHECK_SECONDS = 1.0  # between two looks at the files
_REMEMBERED_MAX = 10_000
_REMOTE_SECONDS = 1.0  # for which an answer of a policy server is remembered

Key = tuple[Any, ...]


@dataclass(slots=True)
class _Loaded:
    """The rules of the files at one time, and what they have decided.

    ``remote`` are those that need a policy server, whose ``answers`` hold for a while.
    """

    enforcer: policy.Enforcer
    remote: frozenset[str]
    decisions: Cache[Key, bool] = field(
        default_factory=lambda: LRUCache(_REMEMBERED_MAX)
    )
    answers: Cache[Key, bool] = field(
        default_factory=lambda: TTLCache(
            _REMEMBERED_MAX, _REMOTE_SECONDS, time.monotonic
        )
    )


class AccessRules:
    """The rules that are in force now."""

    def __init__(self, conf: cfg.ConfigOpts, at_once: int = 2) -> None:
        """Read the policy files, if there are any.

        ``at_once``: threads that may wait for policy servers together.

        :raises StartupError: names the file and the line that is wrong.
        """
        self._conf = conf
        self._watch = WatchedFiles(lambda: _files(conf), self._reload, _CHECK_SECONDS)
        self._lock = threading.Lock()
        self._loaded = _load(conf)
        self._servers = RemoteChecks(at_once, conf.oslo_policy.remote_timeout)

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
        if not route.rules:
            return self.require(route.rule, ctx)
        sent = body()
        name = str(next(iter(sent), None)) if isinstance(sent, dict) else ""
        missing_features.check_action(name)
        if name in route.rules:
            return self.require(route.rules[name], ctx)
        if not self.allows(route.rule, ctx):
            raise Invalid("The body: give the name of an action as its only key.")
        return None  # the handler says which actions there are

    def allows(self, rule: str, ctx: RequestContext) -> bool:
        """Return whether the rule allows it in the project of the request.

        :raises Fault: 503, the rule needs a policy server, which does not answer.
        """
        self._watch.check()
        key = (
            *(rule, ctx.user_id, ctx.project_id, ctx.roles),
            *(ctx.is_admin, ctx.service_roles, ctx.system_scope),
        )
        # Another thread may load new rules meanwhile. What these decide is
        # remembered with them.
        loaded = self._loaded
        cache = loaded.answers if rule in loaded.remote else loaded.decisions
        with self._lock:
            decision = cache.get(key)
        if decision is None:
            decision = self._decision(loaded, rule, ctx)
            with self._lock:
                cache[key] = decision
        return decision

    def shows(self, rule: str, ctx: RequestContext) -> bool:
        """Return whether the rule allows a part of an answer; never raises.

        The request is done then, so it must not be answered with an error.
        """
        try:
            return self.allows(rule, ctx)
        except Fault:
            return False

    def is_admin(self, ctx: RequestContext) -> bool:
        """Return whether it is an administrator of all projects."""
        return self.allows("context_is_admin", ctx)

    def _decision(self, loaded: _Loaded, rule: str, ctx: RequestContext) -> bool:
        """Return what the rule decides."""
        target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
        who = target | {
            "roles": list(ctx.roles),
            "is_admin": ctx.is_admin,
            "is_admin_project": True,
            "service_roles": list(ctx.service_roles),
            "system_scope": ctx.system_scope,
        }

        def decide() -> bool:
            # Without a lock: it reads no files (see _load), so it changes nothing.
            return bool(loaded.enforcer.authorize(rule, target, who))

        if rule not in loaded.remote:
            return decide()
        return self._servers.ask(decide)

    def _reload(self) -> None:
        """Read the files again. Errors keep the former rules."""
        try:
            self._loaded = _load(self._conf)
        except StartupError as error:
            LOG.error("[policy] reload failed, the former rules stay: %s", error)
            return
        LOG.info("[policy] loaded: %s", ", ".join(map(str, _files(self._conf))))


def _load(conf: cfg.ConfigOpts) -> _Loaded:
    """Return the rules of the files as they are now, which are read once."""
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
    enforcer.use_conf = False  # WatchedFiles decides when they are read again
    return _Loaded(enforcer, remote_rules(enforcer.rules))


def _files(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the policy files that exist, in the order in which they are read."""
    files = []
    main = conf.find_file(conf.oslo_policy.policy_file)
    if main:
        files.append(Path(main))
    for name in conf.oslo_policy.policy_dirs:
        folder = conf.find_file(name)
        if folder:
            files += sorted(file for file in Path(folder).iterdir() if file.is_file())
    return files


def _check(file: Path) -> None:
    """:raises StartupError: a rule of the file does not exist, or is not valid."""
    rules, lines = _read(file)
    defaults = {rule.name for rule in policies.list_rules()}
    used = set(_references(rules))
    for name, check in rules.items():
        where = f"policy file {file}, line {lines.get(str(name), 1)}"
        if name not in used | defaults:
            raise StartupError(
                f"{where}: there is no rule {name!r}: see"
                " oslopolicy-sample-generator --namespace lunshare"
            )
        _check_one(where, name, check, defaults | set(rules))


def _read(file: Path) -> tuple[dict[Any, Any], dict[str, int]]:
    """Return the rules of a file, and the line of each.

    :raises StartupError: it is not a mapping in YAML, names a rule twice, or others can
        write it.
    """
    try:
        with open(file, encoding="utf-8", opener=_open_nonblocking) as opened:
            _check_owner(file, os.fstat(opened.fileno()))
            text = opened.read()
        node = yaml.compose(text, yaml.SafeLoader)
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
    return rules, _lines(file, node)


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file. Without O_NONBLOCK a FIFO would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _check_owner(file: Path, known: os.stat_result) -> None:
    if problem := trust_problem(known):
        raise StartupError(f"policy file {file} {problem}")


def _lines(file: Path, node: yaml.Node | None) -> dict[str, int]:
    """Return the line of each rule.

    :raises StartupError: one is there twice. YAML would use the last of the two.
    """
    lines: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        line = key.start_mark.line + 1
        if key.value in lines:
            raise StartupError(
                f"policy file {file}, line {line}: rule {key.value!r} is in line"
                f" {lines[key.value]} already: remove one of them"
            )
        lines[str(key.value)] = line
    return lines


def _check_one(where: str, name: object, check: object, known: set[str]) -> None:
    if not isinstance(check, str | list) and check is not None:
        raise StartupError(f"{where}: the check of {name!r} must be a text")
    if not check:  # oslo.policy would allow it to everybody
        raise StartupError(
            f'{where}: the check of {name!r} is empty: write "@" to allow it to'
            ' everybody, "!" to nobody, or remove the line for the default'
        )
    for other in _references({name: check}):
        if other not in known:
            raise StartupError(f"{where}: {name!r} names rule {other!r}, which is none")
    if check == "!":
        return
    parsed = _parser.parse_rule(check)
    if str(parsed) == "!":
        raise StartupError(f"{where}: {check!r} is not a check that oslo.policy knows")
    _try(where, name, parsed)


def _try(where: str, name: object, parsed: Any) -> None:
    """:raises StartupError: a part of the check would fail, whoever asks."""
    try:
        for part in _plain_parts(parsed):
            part({}, {"roles": ["member"]}, None)
    except Exception as error:
        raise StartupError(
            f"{where}: the check of {name!r} cannot be evaluated ({error}): write"
            " it as in role:member, or @ for everybody"
        ) from None


def _plain_parts(check: Any) -> Iterator[Any]:
    """Yield the parts that need neither other rules nor a server."""
    if isinstance(check, _checks.GenericCheck | _checks.RoleCheck):
        yield check
    parts = [*getattr(check, "rules", ()), getattr(check, "rule", None)]
    for part in filter(None, parts):
        yield from _plain_parts(part)


def _references(rules: dict[Any, Any]) -> Iterator[str]:
    for check in rules.values():
        yield from REFERENCE.findall(str(check))
