# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Commands of nft, carried out in this process: one text is one transaction.

This is libnftables, the library that ``nft`` itself is made of. No process is started.
"""

from __future__ import annotations

import errno
import functools
import socket
import threading
from typing import Any

import orjson

from lunshare.drivers.errors import HelperBusy, Unsupported

_LIBRARY = "libnftables.so.1"
# nftables/libnftables.h
_STATELESS, _JSON, _TERSE = 1 << 1, 1 << 4, 1 << 11
_NETLINK_NETFILTER = 12  # linux/netlink.h
_MISSING = "No such file or directory"
# Linux 6.12 without tables of the family inet says the first one, 6.1 with nfnetlink
# and without nf_tables the last.
_ABSENT = (
    "Operation not supported",
    "Operation not permitted",
    "Protocol not supp",
    "cache initialization failed: Invalid argument",
)
_FOR_A_WHILE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
# The library has variables of the process.
_MUTEX = threading.Lock()


class NftablesFailed(Exception):
    """The library or the kernel refused a text; nothing of it was done."""

    @property
    def is_missing(self) -> bool:
        """Whether the text names a table, chain, set or element that does not exist."""
        return _MISSING in str(self)

    @property
    def is_absent(self) -> bool:
        """Whether the kernel has no such tables, or none for this process."""
        return any(words in str(self) for words in _ABSENT)


def require_library() -> None:
    """Check that the library is there.

    :raises Unsupported: it is not.
    """
    _require_netfilter()
    _library()


def change(text: str) -> None:
    """Carry out the commands of a text, all or none.

    :raises NftablesFailed: they were refused.
    :raises Unsupported: there is no library.
    """
    _run(text, 0)


def read(
    text: str, *, elements: bool = True, counts: bool = False
) -> list[dict[str, Any]]:
    """Return the objects that a ``list`` command shows.

    ``counts``: with numbers of packets, and the times when elements expire.

    :raises NftablesFailed: what it names does not exist.
    :raises Unsupported: there is no library.
    """
    flags = (0 if elements else _TERSE) | (0 if counts else _STATELESS)
    answer = _run(text, _JSON | flags)
    objects: list[dict[str, Any]] = orjson.loads(answer)["nftables"] if answer else []
    return [entry for entry in objects if "metainfo" not in entry]


def _run(text: str, flags: int) -> bytes:
    _require_netfilter()
    library = _library()
    with _MUTEX:
        context = library.nft_ctx_new(0)
        try:
            library.nft_ctx_buffer_output(context)
            library.nft_ctx_buffer_error(context)
            library.nft_ctx_output_set_flags(context, flags)
            refused = library.nft_run_cmd_from_buffer(context, text.encode())
            if refused:
                raise NftablesFailed(_first_line(library, context))
            return bytes(library.nft_ctx_get_output_buffer(context) or b"")
        finally:
            library.nft_ctx_free(context)


def _first_line(library: Any, context: int) -> str:
    output: bytes = library.nft_ctx_get_error_buffer(context) or b""
    line = output.decode(errors="replace").partition("\n")[0]
    return line or "nftables gave no reason"


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    """Load the library once, with the types of its functions."""
    import ctypes  # noqa: PLC0415 - a megabyte that a node without portals does not need

    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise Unsupported(
            "a firewall for the portals",
            f"install {_LIBRARY} (Debian: the package libnftables1), and restart"
            " lunshare-helper.service",
        ) from None
    context = ctypes.c_void_p
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = context
    library.nft_ctx_output_set_flags.argtypes = [context, ctypes.c_uint]
    library.nft_run_cmd_from_buffer.argtypes = [context, ctypes.c_char_p]
    for name in ("free", "buffer_output", "buffer_error"):
        getattr(library, f"nft_ctx_{name}").argtypes = [context]
    for name in ("get_output_buffer", "get_error_buffer"):
        function = getattr(library, f"nft_ctx_{name}")
        function.argtypes, function.restype = [context], ctypes.c_char_p
    return library


def _require_netfilter() -> None:
    """Check that a socket can be opened: without it libnftables ends its process."""
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER).close()
    except OSError as error:
        if error.errno in _FOR_A_WHILE:
            raise HelperBusy("it has no free descriptor or memory") from None
        raise Unsupported(
            "a firewall for the portals",
            f"this kernel has no netfilter ({error.strerror}): give it one with"
            " nf_tables, or keep other machines from the portals' network",
        ) from None
