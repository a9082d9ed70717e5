# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The users of ``auth_strategy = http_basic``: one line for each in one file.

A line is ``NAME:BCRYPT:ROLES:PROJECT``, the format of htpasswd with two more fields,
which other programs ignore. ROLES has commas between two. PROJECT may be empty. A
line that ``htpasswd -B`` wrote has neither: its user exists and may do nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lunshare.agent.trusted_files import trust_problem

_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_NAME = re.compile(r"[^\s:]{1,255}")
_ROLE = re.compile(r"[^\s:,]{1,255}")
_MODE = 0o640
_DAEMON = "lunshare"  # its user and its group


class UsersFileError(Exception):
    """The file cannot be used. The text names it and the line."""


@dataclass(frozen=True, slots=True)
class User:
    """One user. ``project`` is empty for the default project."""

    name: str
    password: bytes = field(repr=False)
    roles: tuple[str, ...] = ()
    project: str = ""


def read(path: str) -> dict[str, User]:
    """Return the users by name.

    :raises UsersFileError: names the file, and the line that is wrong, or how others
        could write it.
    """
    try:
        # Without O_NONBLOCK a FIFO would be waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), encoding="utf-8") as file:
            _check_owner(path, os.fstat(file.fileno()))
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            raise _not_safe(path, "is a symbolic link: name the file itself") from None
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsersFileError(
            f"the file of users {path} cannot be read: {why}"
        ) from None
    users: dict[str, User] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            user = _parse(line)
            if user.name in users:
                raise ValueError("has a user that another line has too")
        except ValueError as error:
            raise UsersFileError(
                f"line {number} of the file of users {path} {error}"
            ) from None
        users[user.name] = user
    return users


@contextlib.contextmanager
def changing(path: str) -> Iterator[dict[str, User]]:
    """Read the users, let the caller change them, write them. A file is created.

    :raises UsersFileError: the file cannot be used as it is.
    :raises OSError: it cannot be written.
    """
    directory = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # two changes at once would lose one
        users = read(path) if os.path.lexists(path) else {}
        yield users
        write(path, users.values())
    finally:
        os.close(directory)


def write(path: str, users: Iterable[User]) -> None:
    """Replace the file at once: readers see the former users or these.

    Its mode is 0640. A new file gets the group lunshare if the caller may give it,
    so that the daemon can read it; a former one keeps its owners.

    :raises OSError: it cannot be written; the former file stays.
    """
    directory = os.path.dirname(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(prefix=".users-", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(_line(user) for user in users)
            os.fchmod(file.fileno(), _MODE)
            _copy_owners(file.fileno(), path)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def check_name(name: str) -> None:
    """:raises ValueError: says what a name may be."""
    if not (_NAME.fullmatch(name) and name.isprintable()) or name.startswith("#"):
        raise ValueError(
            "a user's name has 1 to 255 printable characters, no colon and no blank,"
            " and does not begin with #"
        )


def check_role(role: str) -> None:
    """:raises ValueError: says what a role may be."""
    if not (_ROLE.fullmatch(role) and role.isprintable()):
        raise ValueError("a role has no blank, no comma and no colon")


def check_project(project: str) -> None:
    """:raises ValueError: says what a project may be."""
    if project and not (_NAME.fullmatch(project) and project.isprintable()):
        raise ValueError("a project has no blank, no colon, and at most 255 characters")


def _check_owner(path: str, known: os.stat_result) -> None:
    """Check that nobody else can add a user or an administrator.

    :raises UsersFileError: it is not a file, or another user can write it.
    """
    if problem := trust_problem(known):
        raise _not_safe(path, problem)


def _not_safe(path: str, why: str) -> UsersFileError:
    return UsersFileError(f"the file of users {path} {why}")


def _parse(line: str) -> User:
    name, _, fields = line.partition(":")
    password, _, fields = fields.partition(":")
    roles, _, project = fields.partition(":")
    check_name(name)
    if not _HASH.fullmatch(password):
        raise ValueError(
            "has no bcrypt hash as its second field: write it with `lunshare user add`"
            " or `htpasswd -B`"
        )
    listed = tuple(filter(None, roles.strip().split(",")))
    for role in listed:
        check_role(role)
    check_project(project.strip())
    return User(name, password.encode(), listed, project.strip())


def _line(user: User) -> str:
    roles = ",".join(user.roles)
    return f"{user.name}:{user.password.decode()}:{roles}:{user.project}\n"


def _copy_owners(descriptor: int, path: str) -> None:
    """Give the new file the owners of the former one, else the group lunshare."""
    try:
        former = os.stat(path)
        owners = (former.st_uid, former.st_gid)
    except FileNotFoundError:
        try:
            owners = (-1, grp.getgrnam(_DAEMON).gr_gid)
        except KeyError:
            return
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, *owners)
