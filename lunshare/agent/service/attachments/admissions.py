# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses may open a connection to a backend's portals: those of its hosts.

It is a function of the rows, as the access itself is: an address is admitted while any
wanted attachment of the backend has it. Who changes rows calls ``update`` afterwards;
it reads the rows and sets the addresses accordingly, under the locks of these.
"""

from __future__ import annotations

import contextlib
import threading

from lunshare.agent.backends import Backends
from lunshare.agent.db import attachments
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.records import Attachment
from lunshare.drivers.values import host_address

#: Addresses share these locks; each is held for one call of the helper.
_LOCKS = 64


class Admissions:
    """Admits the addresses of hosts. Nothing happens where a target has no firewall."""

    def __init__(self, db: Database, backends: Backends) -> None:
        self._db, self._backends = db, backends
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def update(self, backend: str, *rows: Attachment) -> None:
        """Admit the addresses of hosts while any row of the backend wants them.

        Before their access is opened, and after it was closed. Can be repeated.

        :raises BackendFailed: the addresses are as they were.
        """
        sent = {host_address((row.connector or {}).get("ip")) for row in rows}
        addresses, node_backend = list(filter(None, sent)), self._backends.find(backend)
        if not addresses or node_backend is None:
            return
        if not node_backend.drivers.target.guards_portals:
            return
        with contextlib.ExitStack() as stack:
            for number in sorted({hash(address) % _LOCKS for address in addresses}):
                stack.enter_context(self._locks[number])
            with self._db.reading() as connection:
                wishes = {
                    address: attachments.any_at_address(connection, backend, address)
                    for address in addresses
                }
            with node_backend.for_request() as drivers:
                is_there = drivers.target.admit_each(wishes)
        if not is_there:
            self.apply(backend)

    def apply(self, backend: str) -> tuple[str, ...]:
        """Admit the addresses of all hosts of a backend, and no others.

        Returns what was changed, as sentences for a log; raises as ``update``.
        """
        with contextlib.ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock)
            with self._db.reading() as connection:
                hosts = attachments.portal_hosts(connection, backend)
            with self._backends[backend].for_request() as drivers:
                return drivers.target.admit_all(hosts)
