# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""NFS shares as the operator writes them, and their options.

A share is a line ``host:/path [-o options]`` of a file, or three options of the
backend's section. Nothing here touches a share.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oslo_config import cfg

from lunshare.drivers.errors import Misconfigured

OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "nfs_shares_config",
        help="File with the NFS shares of this backend, one HOST:/PATH [-o OPTIONS]"
        " a line. \\040 is a blank in a path; lines that start with # are comments. The"
        " file is read at start. The shares form one pool. While one of them is lost,"
        " the volumes on the others can be used, and no volume is created.",
    ),
    cfg.StrOpt(
        "nas_host",
        help="Name or address of the NFS server, instead of nfs_shares_config.",
    ),
    cfg.StrOpt(
        "nas_share_path",
        help="Path that the server nas_host exports, such as /srv/volumes.",
    ),
    cfg.StrOpt(
        "nas_mount_options",
        help="Mount options of that share, separated by commas, such as vers=4.2. Use"
        " 4.2, because older versions cannot clone files, and do not use soft: a soft"
        " mount fails hosts' writes when the server is slow.",
    ),
    cfg.StrOpt(
        "nfs_mount_point_base",
        default="/run/lunshare/mnt",
        regex="/[A-Za-z0-9._/-]+",
        help="Directory below which shares are mounted. Only root may be able to change"
        " it and the directories above it. Name the same directory in"
        " /etc/lunshare/helper.conf.",
    ),
]

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]")
_ESCAPE = re.compile(r"\\([0-7]{3})")

# The options of nfs(5) that choose how a server is reached, and none of mount(8), which
# can bind, remount, change owners or run programs. Not mounthost either, which lets
# another host choose the directory (NFS 3). rootwrap.d/nfs.filters has the same two
# lists.
FLAGS = (
    "hard|soft|softerr|softreval|nosoftreval|ac|noac|cto|nocto|sharecache|nosharecache"
    "|resvport|noresvport|lock|rdirplus|nordirplus|tcp|rdma|fsc|nofsc|fg"
    "|migration|nomigration|noatime|nodiratime|relatime|rw"
)
VALUED = (
    "vers|nfsvers|minorversion|proto|port|timeo|retrans|retry|rsize|wsize|sec|nconnect"
    "|max_connect|trunkdiscovery|xprtsec|acregmin|acregmax|acdirmin|acdirmax|actimeo"
    "|clientaddr|namlen|lookupcache|mountport|mountproto|mountvers"
)
# With these this node does not see the locks of other hosts. A disk that another host
# has open would count as closed, and could be deleted, reverted or unmanaged.
_LOCKS = re.compile(r"nolock|local_lock=(all|posix|flock)")
_OPTION = re.compile(rf"({FLAGS})|({VALUED})=[A-Za-z0-9.:_-]+")


@dataclass(frozen=True, slots=True)
class Share:
    """One exported directory of one server. ``options`` are those of mount -o."""

    host: str
    path: str
    options: str = ""

    @property
    def source(self) -> str:
        """The source as in the mount command and in the kernel's mount table."""
        return f"{self.host}:{self.path}"

    @property
    def digest(self) -> str:
        """The name of its mount point. It depends on the source, not on the options."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:32]

    def point(self, base: str) -> str:
        """Return the path of its mount point below ``base``."""
        return f"{base.rstrip('/')}/{self.digest}"


def configured(options: Mapping[str, Any]) -> tuple[Share, ...]:
    """Return the shares of a backend section; reads the file ``nfs_shares_config``.

    :raises Misconfigured: names the option, or the file and the line.
    """
    file, host = options["nfs_shares_config"], options["nas_host"]
    if file and host:
        raise Misconfigured(
            "nfs_shares_config and nas_host are both set", "keep one of the two"
        )
    if file:
        return _from_file(file)
    if host:
        return (_from_options(options),)
    raise Misconfigured(
        "no NFS share is configured",
        "set nas_host and nas_share_path, or nfs_shares_config",
    )


def _from_options(options: Mapping[str, Any]) -> Share:
    host, path = options["nas_host"], options["nas_share_path"] or ""
    where = f"nas_host {host}, nas_share_path {path or '(not set)'}"
    bare = ":" in host and not host.startswith("[")
    mount = (options["nas_mount_options"] or "").removeprefix("-o").strip()
    return _share(where, f"[{host}]" if bare else host, path, mount)


def _from_file(file: str) -> tuple[Share, ...]:
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise Misconfigured(
            f"nfs_shares_config {file}: {why}",
            "make it readable for the daemon, with one HOST:/PATH on each line",
        ) from None
    shares: dict[str, Share] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            where = f"nfs_shares_config {file}, line {number}"
            share = _from_line(where, line)
            if share.source in shares:
                raise Misconfigured(
                    f"{where}: {share.source} is listed twice", "remove one"
                )
            shares[share.source] = share
    if not shares:
        raise Misconfigured(
            f"nfs_shares_config {file}: it names no share", "add HOST:/PATH"
        )
    return tuple(shares.values())


def _from_line(where: str, line: str) -> Share:
    match line.split():
        case [source]:
            options = ""
        case [source, "-o", options]:
            pass
        case _:
            raise Misconfigured(
                f"{where}: {line.strip()!r} is not a share",
                "write HOST:/PATH or HOST:/PATH -o OPTION,OPTION; a blank in a path"
                " is \\040",
            )
    host, colon, path = source.partition(":/")
    if not colon:
        raise Misconfigured(f"{where}: {source!r} has no ':/'", "write HOST:/PATH")
    path = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), "/" + path)
    return _share(where, host, path, options)


def _share(where: str, host: str, path: str, options: str) -> Share:
    """Return a share whose parts are all valid."""
    if not _HOST.fullmatch(host):
        raise Misconfigured(
            f"{where}: host {host!r} is not valid",
            "give a name, an IPv4 address, or an IPv6 address in brackets",
        )
    plain = path.isascii() and path.isprintable() and path.startswith("/")
    if not plain or {"", ".", ".."} & set(path.rstrip("/").split("/")[1:]):
        raise Misconfigured(
            f"{where}: path {path!r} is not valid",
            "give an absolute path of printable ASCII, without . or .. in it",
        )
    for option in options.split(",") if options else ():
        if _LOCKS.fullmatch(option):
            raise Misconfigured(
                f"{where}: mount option {option} hides from this node which files"
                " other hosts have open",
                "remove it; if the server has no lock service, use NFS 4",
            )
        if not _OPTION.fullmatch(option):
            raise Misconfigured(
                f"{where}: mount option {option!r} is not known",
                "give options of nfs(5) for how the server is reached, separated by"
                " commas without blanks; nosuid, nodev, noexec and nosymfollow are"
                " always added",
            )
    return Share(host, path.rstrip("/") or "/", options)
