# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Check names and passwords against the file of users.

bcrypt costs a tenth of a second on purpose. A password that was right is remembered
for a while as a keyed hash, so that each client pays that once. The key is made at
the start and never leaves the process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import threading
import time
from collections.abc import Mapping

import bcrypt
from cachetools import TTLCache

from lunshare.agent import users_file
from lunshare.agent.api.faults import Fault
from lunshare.agent.model.errors import StartupError
from lunshare.agent.threads.limit import Limit, patience
from lunshare.agent.threads.turn import waiting
from lunshare.agent.users_file import User, UsersFileError
from lunshare.agent.watched_files import WatchedFiles

LOG = logging.getLogger(__name__)

#: Seconds for which a password that was right is not checked again.
REMEMBER_SECONDS = 300.0
#: Most of them. One more replaces the least used.
_REMEMBERED_MAX = 10_000
_BCRYPT_MAX = 72  # bytes; bcrypt uses no more
_ROUNDS = 12
_SALT_AND_HASH = "." * 22 + "." * 31
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="lunshare", charset="UTF-8"'}


class Passwords:
    """The users that the file has now."""

    def __init__(self, path: str, at_once: int) -> None:
        """Read the file. ``at_once``: threads that may compute bcrypt together.

        :raises StartupError: the file cannot be read, or a line is wrong.
        """
        self._path = path
        self._key = os.urandom(32)
        self._checks = Limit(at_once)
        self._lock = threading.Lock()
        self._hashes: TTLCache[str, bytes] = TTLCache(
            _REMEMBERED_MAX, REMEMBER_SECONDS, time.monotonic
        )
        self._watch = WatchedFiles(lambda: (path,), self._read_changed)
        try:
            self._set(users_file.read(path))
        except UsersFileError as error:
            raise StartupError(
                f"http_basic_auth_user_file: {error}: create the file with"
                " `lunshare user add`"
            ) from None

    def user(self, authorization: str | None) -> User:
        """Return the user whose name and password the header has.

        A name that does not exist costs as much as a password that is wrong.

        :raises Fault: 401, the password is wrong.
        :raises Fault: 503, too many others are checked now, or the file cannot be used.
        """
        self._refresh()
        name, password = _credentials(authorization)
        user = self._users.get(name)
        if user is not None and self._is_remembered(user, password):
            return user
        if not self._is_right(user, password) or user is None:
            raise unauthorized("The user name or the password is wrong.")
        self._remember(user, password)
        return user

    def _is_right(self, user: User | None, password: bytes) -> bool:
        with waiting(), self._checks.place(patience()) as check:
            if check is None:
                raise Fault(503, "Too many passwords are checked: try again.", _RETRY)
            # Another request of the same client may have waited before this one.
            if user is not None and self._is_remembered(user, password):
                return True
            return _matches(user.password if user else self._nobody, password)

    def _is_remembered(self, user: User, password: bytes) -> bool:
        with self._lock:
            right = self._hashes.get(user.name, b"")
        return hmac.compare_digest(right, self._hash(user, password))

    def _remember(self, user: User, password: bytes) -> None:
        with self._lock:
            self._hashes[user.name] = self._hash(user, password)

    def _hash(self, user: User, password: bytes) -> bytes:
        """A new password of the user changes it, since it includes the bcrypt hash."""
        text = b"\0".join((user.name.encode(), user.password, password))
        return hmac.digest(self._key, text, hashlib.sha256)

    def _refresh(self) -> None:
        """Read the file again if it has changed."""
        self._watch.check()
        if self._problem:
            raise Fault(503, "The users cannot be read; the log says why.", _RETRY)

    def _read_changed(self) -> None:
        try:
            self._set(users_file.read(self._path))
            LOG.info("[users] loaded: %s, %d users", self._path, len(self._users))
        except UsersFileError as error:
            # A user may have been removed, so the former users are not used.
            self._problem = True
            LOG.error("[users] every password is refused: %s", error)

    def _set(self, users: Mapping[str, User]) -> None:
        rounds = [int(user.password[4:6]) for user in users.values()]
        self._users = users
        self._nobody = (
            f"$2b${max(rounds, default=_ROUNDS):02}${_SALT_AND_HASH}".encode()
        )
        self._problem = False


_RETRY = {"Retry-After": "1"}


def unauthorized(sentence: str) -> Fault:
    """Return the 401 that asks a client for a name and a password."""
    return Fault(401, sentence, _CHALLENGE)


def _credentials(authorization: str | None) -> tuple[str, bytes]:
    """Return name and password. A password that bcrypt cannot use becomes empty."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        raise unauthorized("This node needs a user name and a password (HTTP Basic).")
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.decode().partition(":")
    except ValueError:  # not base64, not ASCII, not UTF-8
        colon = name = password = ""
    if not colon:
        raise unauthorized("The Authorization header is not valid: send HTTP Basic.")
    return name, password.encode()


def _matches(stored: bytes, password: bytes) -> bool:
    """Return whether the password has this hash, in constant time."""
    usable = len(password) <= _BCRYPT_MAX and b"\0" not in password
    try:
        right = bcrypt.checkpw(password if usable else b"", stored)
    except ValueError:
        return False
    return right and usable
