# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts that use volumes: their connectors, sessions and I/O.

The initiator is libiscsi (lio_hosts.py). Its sessions never log in again by
themselves, so a session that still works was never dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

from lunshare.drivers.values import Auth
from tests.stands.waiting import until
from tests.system.lio_hosts import BLOCK, DATA_PROTECT, LoginRefused, Refused, Session

WRITE_PROTECTED = 0x2700
# Each round uses the two processors that the tested code needs too: with a pause of
# 0.01 s two hosts used one of them.
_PAUSE_SECONDS = 0.1

Info = Mapping[str, Any]


class Host:
    """One host. ``leave`` closes all its sessions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.initiator = f"iqn.1994-05.com.example:{name}"
        self.isid: int | None = None  # of each session; None is another one each time
        self._sessions: list[Session] = []

    @property
    def connector(self) -> dict[str, object]:
        """Its connector, in the form of the API."""
        return {"initiator": self.initiator, "host": self.name, "ip": "127.0.0.1"}

    def login(self, info: Info, auth: Auth | None = None) -> Session:
        """Log in with the values of connection_info, or with other credentials.

        :raises LoginRefused: the target refuses the login.
        """
        iqn, portal = info["target_iqn"], info["target_portal"]
        auth = auth or own(info)
        session = Session(self.initiator, iqn, portal, auth, self.isid)
        self._sessions.append(session)
        return session

    def refused(self, info: Info, auth: Auth | None = None) -> bool:
        """Whether a login is refused."""
        try:
            self.login(info, auth)
        except LoginRefused:
            return True
        return False

    def leave(self) -> None:
        """Drop every session, as a host that disappears."""
        for session in self._sessions:
            session.close()
        self._sessions.clear()


def own(info: Info) -> Auth | None:
    """The credentials in a connection_info."""
    if info.get("auth_method") != "CHAP":
        return None
    return Auth(info["auth_username"], info["auth_password"])


def block(text: str) -> bytes:
    """A block of data that starts with ``text``."""
    return text.encode().ljust(BLOCK, b".")


def write_protected(session: Session, at: int = 0) -> bool:
    """Whether the answer to WRITE is DATA PROTECT, WRITE PROTECTED (07h/27h/00h)."""
    try:
        session.write(at, block("not allowed"))
    except Refused as refused:
        return (refused.key, refused.ascq) == (DATA_PROTECT, WRITE_PROTECTED)
    return False


class Traffic:
    """I/O of one session, several times per second, until ``stop``.

    A read-write host writes its own blocks and reads them back.
    ``pause`` is in seconds.
    """

    def __init__(
        self, session: Session, mode: str, at: int = 2048, pause: float = _PAUSE_SECONDS
    ) -> None:
        self._session, self._mode, self._at = session, mode, at
        self._pause = pause
        self._rounds = 0
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_progress(self) -> None:
        """Return after two more successful rounds."""
        wanted = self._rounds + 2
        until(lambda: self._rounds >= wanted or self._error)
        assert self._error is None, self._error

    def stop(self) -> None:
        """Stop; fails if any I/O has failed."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self._error is None, self._error

    def __enter__(self) -> Self:
        self.wait_for_progress()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                self._round()
                self._rounds += 1
        except Exception as error:
            self._error = error

    def _round(self) -> None:
        if self._mode == "rw":
            data = block(f"round {self._rounds}")
            self._session.write(self._at, data)
            assert self._session.read(self._at) == data
        else:
            self._session.read(self._at)
