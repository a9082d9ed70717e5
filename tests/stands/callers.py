# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An administrator for each auth strategy, and the options of its daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import bcrypt

from tests.api.identity_daemon import proof
from tests.stands import keystone as keystone_server
from tests.stands.keystone import Keystone
from tests.tempest import pins

USER = "admin"
_PASSWORD = "secret-on-loopback"
_PROJECT = "default"
_FEW_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Caller:
    """An administrator of a daemon with these options.

    options: lines of [DEFAULT], then whole sections.
    headers: what proves each request.
    keystone: the server that knows it, if there is one.
    """

    strategy: str
    options: str
    project: str = _PROJECT
    password: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    keystone: Keystone | None = None


@contextmanager
def noauth(path: Path) -> Iterator[Caller]:
    """Everyone is an administrator."""
    yield Caller("noauth", "auth_strategy = noauth\nnoauth_on_loopback = true")


@contextmanager
def http_basic(path: Path) -> Iterator[Caller]:
    """One user in a file of users."""
    hashed = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(_FEW_ROUNDS))
    users = path / "users"
    users.write_text(f"{USER}:{hashed.decode()}:admin:{_PROJECT}\n")
    yield Caller(
        "http_basic",
        f"auth_strategy = http_basic\nhttp_basic_auth_user_file = {users}",
        password=_PASSWORD,
        headers=proof(USER, _PASSWORD),
    )


@contextmanager
def keystone(path: Path) -> Iterator[Caller]:
    """The administrator of a Keystone, which runs until the context is left."""
    server = Keystone(pins.venv(), path / "keystone")
    with closing(server):
        server.start()
        server.prepare()
        yield Caller(
            "keystone",
            f"auth_strategy = keystone\n{server.options}",
            project=server.project,
            password=keystone_server.PASSWORD,
            headers={"X-Auth-Token": server.token},
            keystone=server,
        )


#: Each may write files into the folder.
STRATEGIES: Mapping[str, Callable[[Path], AbstractContextManager[Caller]]] = {
    "noauth": noauth,
    "http_basic": http_basic,
    "keystone": keystone,
}
