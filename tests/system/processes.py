# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every process start, reported by the kernel (proc connector).

Linux sends each fork to the listeners of its connector (include/uapi/linux/
connector.h and cn_proc.h). Nothing is sampled, so also the shortest process is
seen.
"""

from __future__ import annotations

import os
import select
import socket
import struct

_NETLINK_CONNECTOR, _CN_IDX_PROC, _CN_VAL_PROC = 11, 1, 1
_LISTEN, _FORK = 1, 0x00000001
_NLMSG_DONE = 3
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_MESSAGE = struct.Struct("=IIIIHH")  # struct cn_msg, without its data
_EVENT = struct.Struct("=IIQ")  # struct proc_event up to its union
_FORKED = struct.Struct("=iiii")  # parent pid and tgid, child pid and tgid
_BUFFER = 4 * 1024**2


class Forks:
    """The processes started since ``__enter__``, without threads."""

    def __enter__(self) -> Forks:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind((0, _CN_IDX_PROC))
        request = struct.pack("=I", _LISTEN)
        body = (
            _MESSAGE.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(request), 0) + request
        )
        length = _HEADER.size + len(body)
        head = _HEADER.pack(length, _NLMSG_DONE, 0, 0, os.getpid())
        self._socket.send(head + body)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def of(self, *parents: int) -> list[int]:
        """The children that these processes have started since the last call."""
        found = []
        while select.select([self._socket], [], [], 0)[0]:
            data = self._socket.recv(65536)
            event = _HEADER.size + _MESSAGE.size
            what, _, _ = _EVENT.unpack_from(data, event)
            if what != _FORK:
                continue
            _, parent, child, group = _FORKED.unpack_from(data, event + _EVENT.size)
            if parent in parents and child == group:
                found.append(child)
        return found


def memory_holds(pid: int, *words: bytes) -> dict[bytes, bool]:
    """Which of these words are in the memory of a process."""
    found = dict.fromkeys(words, False)
    with (
        open(f"/proc/{pid}/maps", encoding="ascii") as maps,
        open(f"/proc/{pid}/mem", "rb", buffering=0) as memory,
    ):
        for line in maps:
            addresses, rights, _, _, inode, *_ = line.split()
            if not rights.startswith("rw") or inode != "0":
                continue  # Python has loaded code in anonymous memory
            start, end = (int(each, 16) for each in addresses.split("-"))
            memory.seek(start)
            data = memory.read(end - start)
            for word in words:
                found[word] |= word in data
    return found
