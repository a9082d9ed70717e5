# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare user``: the users of auth_strategy = http_basic, in their file.

These commands need no running daemon. A running one reads the file again.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from lunshare.agent import users_file
from lunshare.agent.cli import help_text
from lunshare.agent.cli.client import NodeClient, Refused
from lunshare.agent.cli.commands import Result
from lunshare.agent.cli.table import table
from lunshare.agent.users_file import User, UsersFileError

_FILE = "/etc/lunshare/users"
_LENGTH = range(8, 73)  # bcrypt uses no more than 72 bytes
_ROLES = "admin, member, reader, service"

Users = dict[str, User]


def add(node: NodeClient, arguments: Namespace) -> Result:
    """Add a user, or give one a new password, which is read from standard input."""
    with users_file.changing(arguments.file) as users:
        former = users.get(arguments.name, User(arguments.name, b"", ("reader",)))
        roles = former.roles if arguments.roles is None else _roles(arguments.roles)
        project = former.project if arguments.project is None else arguments.project
        _check(lambda: users_file.check_project(project))
        _check(lambda: users_file.check_name(arguments.name))
        users[arguments.name] = User(arguments.name, _hash(_password()), roles, project)
    return _shown([users[arguments.name]])


def remove(node: NodeClient, arguments: Namespace) -> Result:
    """Remove a user, whose password is refused at once."""
    with users_file.changing(arguments.file) as users:
        user = _require(users, arguments.name)
        del users[arguments.name]
    return _shown([user])


def set_roles(node: NodeClient, arguments: Namespace) -> Result:
    """Replace the roles of a user."""
    with users_file.changing(arguments.file) as users:
        former = _require(users, arguments.name)
        users[arguments.name] = replace(former, roles=_roles(arguments.roles))
    return _shown([users[arguments.name]])


def list_users(node: NodeClient, arguments: Namespace) -> Result:
    """List the users, their roles and their projects."""
    return _shown(users_file.read(arguments.file).values())


def run(node: NodeClient, arguments: Namespace) -> Result:
    """Manage the users of auth_strategy = http_basic."""
    try:
        result: Result = arguments.verb(node, arguments)
    except UsersFileError as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{arguments.file} cannot be written: {error.strerror}") from None
    return result


def describe(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the commands below ``user``."""
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, verb in (
        ("add", add),
        ("remove", remove),
        ("list", list_users),
        ("set-roles", set_roles),
    ):
        command = help_text.add_command(verbs, name, verb, common, "user")
        command.set_defaults(verb=verb)
        command.add_argument(
            "--file", default=_FILE, help=f"of the users (default: {_FILE})"
        )
        if verb is not list_users:
            command.add_argument("name", metavar="NAME", help="of the user")
        if verb is set_roles:
            command.add_argument(
                "roles", metavar="ROLES", help=f"such as member; {_ROLES}"
            )
        if verb is add:
            command.add_argument(
                "--roles", help=f"comma-separated, of {_ROLES} (default: reader)"
            )
            command.add_argument(
                "--project", help="project id (default: the default one)"
            )


def _roles(text: str) -> tuple[str, ...]:
    roles = tuple(dict.fromkeys(filter(None, text.lower().split(","))))
    for role in roles:
        _check(lambda role=role: users_file.check_role(role))  # type: ignore[misc]
    return roles


def _check(check: Callable[[], Any]) -> None:
    try:
        check()
    except ValueError as error:
        raise Refused(str(error)) from None


def _require(users: Users, name: str) -> User:
    if name not in users:
        raise Refused(f"there is no user {name!r}: see lunshare user list")
    return users[name]


def _password() -> str:
    """Read a password: typed twice at a terminal, else the first line of stdin."""
    if not sys.stdin.isatty():
        return _usable(sys.stdin.readline().rstrip("\n"))
    password = _usable(getpass.getpass("Password: "))
    if getpass.getpass("The same again: ") != password:
        raise Refused("the two passwords differ")
    return password


def _usable(password: str) -> str:
    if len(password.encode()) not in _LENGTH or "\0" in password:
        raise Refused(
            f"a password has {_LENGTH.start} to {_LENGTH.stop - 1} bytes, and no NUL"
        )
    return password


def _hash(password: str) -> bytes:
    import bcrypt  # noqa: PLC0415 (no other command needs it)

    return bcrypt.hashpw(password.encode(), bcrypt.gensalt())


def _shown(users: Iterable[User]) -> Result:
    """Show users without anything of their passwords."""
    ordered = sorted(users, key=lambda user: user.name)
    rows = [
        {"name": user.name, "roles": list(user.roles), "project": user.project}
        for user in ordered
    ]
    cells = [[user.name, ",".join(user.roles), user.project] for user in ordered]
    return Result(rows, table(("NAME", "ROLES", "PROJECT"), cells))
