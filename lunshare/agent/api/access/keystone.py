# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Check the token of a request with keystonemiddleware, before the API has it.

Only auth_strategy = keystone loads it. A token is validated by Keystone once in
``token_cache_time``, also if many requests bring it at the same time. While Keystone
is unavailable, tokens in the cache are accepted, and others get 503.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

from cachetools import TLRUCache
from oslo_config import cfg
from oslo_log import log

from lunshare.agent import request_scope
from lunshare.agent.api.access.accepted_tokens import AcceptedTokens
from lunshare.agent.model.errors import StartupError
from lunshare.agent.threads.limit import Limit, patience
from lunshare.agent.threads.turn import waiting

LOG = log.getLogger(__name__)

App = Callable[..., Any]

#: Key of the WSGI environment: the status with which a token was refused.
REFUSED = "lunshare.token_refused"

_NEEDS_TOKEN = ("/v3/", "/metrics")
_PEER = "X_REMOTE_UID"
_CACHE = "lunshare.token_cache"
_GROUP = "keystone_authtoken"
_TOKENS_MAX = 10_000
#: Seconds that a request waits for Keystone, unless the option has a value.
_TIMEOUT = 5


class TokenCache:
    """Validated tokens by their hash, for so many seconds. Any thread may use it."""

    def __init__(self) -> None:
        self._answers: TLRUCache[str, tuple[Any, float]] = TLRUCache(
            _TOKENS_MAX, lambda _key, answer, _now: answer[1], time.monotonic
        )
        self._lock = threading.Lock()

    def get(self, key: str) -> tuple[Any, float]:
        """Return what is known, or None, and until when, of time.monotonic()."""
        with self._lock:
            return self._answers.get(key, (None, 0.0))

    def set(self, key: str, value: Any, seconds: float) -> float:
        """Remember for so many seconds; forget the least used of too many."""
        until = time.monotonic() + seconds
        with self._lock:
            self._answers[key] = (value, until)
        return until


class RequestCache:
    """The cache as keystonemiddleware uses it for one request.

    ``until``: how long its last token is remembered; 0 if it is not.
    """

    def __init__(self, cache: TokenCache) -> None:
        self._cache, self.until = cache, 0.0

    def get(self, key: str) -> Any:
        """Return what is known, or None."""
        value, self.until = self._cache.get(key)
        return value

    def set(self, key: str, value: Any, time: float = 0) -> None:
        """Remember for ``time`` seconds."""
        self.until = self._cache.set(key, value, time)


class OneAtATime:
    """Locks by name. A lock exists while a thread holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[threading.Lock, int]] = {}
        self._mutex = threading.Lock()

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of this name."""
        with self._mutex:
            lock, users = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._mutex:
                lock, users = self._locks.pop(name)
                if users > 1:
                    self._locks[name] = (lock, users - 1)


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of keystonemiddleware, with the defaults of this node.

    :raises StartupError: keystonemiddleware is missing.
    """
    try:
        opts = import_module("keystonemiddleware.opts")
    except ImportError as error:
        raise StartupError(
            f"auth_strategy = keystone needs keystonemiddleware ({error}): install"
            " lunshare[keystone]"
        ) from None
    for group, options in opts.list_auth_token_opts():
        conf.register_opts(options, group)
    # Without a timeout a Keystone that hangs would hold threads for ever.
    conf.set_default("http_connect_timeout", _TIMEOUT, _GROUP)
    conf.set_default("http_request_max_retries", 1, _GROUP)
    conf.set_default("service_token_roles_required", True, _GROUP)


def wrap(app: App, conf: cfg.ConfigOpts, at_once: int) -> App:
    """Return the application with the tokens of its requests checked.

    ``at_once``: threads that may wait for Keystone together.

    :raises StartupError: keystonemiddleware is missing, or its options are wrong.
    """
    register(conf)
    auth_token = import_module("keystonemiddleware.auth_token")
    webob = import_module("webob.exc")
    checks, same = Limit(at_once), OneAtATime()

    class Protocol(auth_token.AuthProtocol):  # type: ignore[misc, name-defined]
        """Asks Keystone once about a token, however many requests have it.

        A thread that waits for the answer has no turn (lunshare.agent.threads).
        """

        failed = 0.0  # when Keystone did not answer, of time.monotonic()

        def fetch_token(self, token: str, **kwargs: Any) -> Any:
            answer = self._token_cache.get(token)
            if answer:
                return answer[0] if len(answer) == 2 else answer
            with waiting(), checks.place(patience()) as check:
                if check is None:
                    raise webob.HTTPServiceUnavailable("Keystone is slow.")
                return self._fetch_once(token, kwargs)

        def _fetch_once(self, token: str, kwargs: dict[str, Any]) -> Any:
            began = time.monotonic()
            with same.lock(hashlib.sha256(token.encode()).hexdigest()):
                if self.failed > began:  # for another request with this token
                    raise webob.HTTPServiceUnavailable("Keystone is unavailable.")
                try:
                    return super().fetch_token(token, **kwargs)
                except webob.HTTPServiceUnavailable:
                    self.failed = time.monotonic()
                    raise

    try:
        own = {"oslo_config_config": conf, "cache": _CACHE}
        protocol = Protocol(_accepted, {**own, "delay_auth_decision": False})
        server = protocol._identity_server
        server.verify_token = _checked_answers(
            server.verify_token, auth_token.InvalidToken, webob.HTTPServiceUnavailable
        )
    except Exception as error:
        raise StartupError(f"[keystone_authtoken] is not usable: {error}") from error
    return _Checked(app, protocol)


def _checked_answers(
    verify: Callable[..., Any], invalid: type[Exception], unavailable: type[Exception]
) -> Callable[..., Any]:
    """Return a ``verify_token`` that raises ``unavailable`` for a malformed answer.

    keystonemiddleware would put such an answer into the cache, and fail when it uses
    it. It reports an empty answer as ``invalid``; then no error of HTTP came before.
    """

    def verified(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = verify(*args, **kwargs)
        except invalid as error:
            if error.__context__ is not None:
                raise
            raise _malformed_answer(unavailable, "it is empty") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _malformed_answer(unavailable, repr(error)) from None
        problem = _answer_problem(answer)
        if problem:
            raise _malformed_answer(unavailable, problem)
        return answer

    return verified


def _malformed_answer(unavailable: type[Exception], why: str) -> Exception:
    LOG.error("[keystone] its answer about a token is malformed: %s", why)
    return unavailable("The answer of Keystone is malformed.")


def _answer_problem(answer: Any) -> str:
    """Return what is wrong with what Keystone says about a token, or "".

    A proxy, another service or a broken Keystone may answer 200 with any JSON. Only the
    parts are checked that decide who somebody is.
    """
    token = answer.get("token") if isinstance(answer, Mapping) else None
    if not isinstance(token, Mapping):
        return "it has no token"
    return next((why for right, why in _checks(token) if not right), "")


def _checks(token: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    yield _is_time(token.get("expires_at")), "expires_at is not a time"
    yield _has_text(token.get("user"), "id"), "the user has no id"
    for scope in ("project", "domain"):
        if scope in token:
            yield _has_text(token[scope], "id"), f"the {scope} has no id"
    yield isinstance(token.get("system", {}), Mapping), "the system is not an object"
    roles = token.get("roles", [])
    yield isinstance(roles, list), "the roles are not a list"
    yield all(_has_text(role, "name") for role in roles), "a role has no name"


def _has_text(part: Any, key: str) -> bool:
    text = part.get(key) if isinstance(part, Mapping) else None
    return isinstance(text, str) and bool(text)


def _is_time(text: Any) -> bool:
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True


class _Checked:
    """The application, whose requests pass keystonemiddleware first."""

    def __init__(self, app: App, protocol: App) -> None:
        self._app, self._protocol = app, protocol
        self._cache, self._accepted = TokenCache(), AcceptedTokens()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Serve a request. Peers, versions and health checks need no token."""
        request_scope.begin(environ)
        needed = environ["PATH_INFO"].startswith(_NEEDS_TOKEN) and _PEER not in environ
        if needed and not self._accepted.enter(environ):
            self._check(environ)
        return self._app(environ, start_response)

    def _check(self, environ: dict[str, Any]) -> None:
        environ[_CACHE] = cache = RequestCache(self._cache)
        status = self._checked(environ)
        if status != _ACCEPTED_STATUS:
            environ[REFUSED] = status
        else:
            self._accepted.remember(environ, cache.until)

    def _checked(self, environ: dict[str, Any]) -> int:
        """Return the status with which keystonemiddleware answers."""
        statuses: list[str] = []
        try:
            for _ in self._protocol(environ, _StatusRecorder(statuses)):
                pass
        except Exception:
            LOG.exception("[keystone] FAILED to check a token")
            return 503
        return int(statuses[0].split()[0])


class _StatusRecorder:
    """A start_response that only records the status."""

    def __init__(self, statuses: list[str]) -> None:
        self._statuses = statuses

    def __call__(self, status: str, headers: Any, exc_info: Any = None) -> Any:
        self._statuses.append(status)
        return lambda data: None


_ACCEPTED_STATUS = 204


def _accepted(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Answer when the token is accepted. Only then the application is called."""
    start_response(f"{_ACCEPTED_STATUS} No Content", [])
    return []
