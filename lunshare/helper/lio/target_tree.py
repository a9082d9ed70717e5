# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where one volume's target is in configfs, and whose it is. Reads only."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator

from lunshare.helper.lio import backstores, cinder_targets
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.cinder_targets import TakesOver
from lunshare.helper.lio.configfs import CORE, ISCSI, links, names, read_or_empty

_LUNS = {Role.WRITERS: "lun_0", Role.READERS: "lun_1"}
# The numbers of the other LUNs, each for one host. rtslib reads no larger ones.
_FIRST, _END = 2, 65_536


class Target:
    """Where the target of one volume is in configfs.

    ``takes_over``: for which volume groups it may be one that Cinder's LVM driver has
    created, with its own backstore. It stays as it is, because a live session keeps its
    disk only as long as nothing of both is replaced. None for no group.
    """

    def __init__(
        self, prefix: str, volume_id: str, takes_over: TakesOver | None = None
    ) -> None:
        self.volume_id, self.prefix = volume_id, prefix
        self.takes_over = takes_over
        self.name = f"volume-{volume_id}"
        self.iqn = prefix + self.name
        self.path = f"{ISCSI}/{self.iqn}"
        self.group = self.path + "/tpgt_1"
        self._is_linked, self._identity = False, ""

    def lun(self, role: Role) -> str:
        """Return the path of the writers' or the readers' LUN."""
        return f"{self.group}/lun/{_LUNS[role]}"

    def own_luns(self, initiator: str) -> Iterator[str]:
        """Yield the paths that the LUN of one host may have. It gets the first free.

        So none is searched. Which one it has is read from its ACL.
        """
        digest = hashlib.sha512(f"{self.volume_id} {initiator}".encode()).digest()
        for at in range(0, len(digest), 2):
            number = int.from_bytes(digest[at : at + 2], "big") % (_END - _FIRST)
            yield f"{self.group}/lun/lun_{_FIRST + number}"

    def luns_of_hosts(self, luns: Iterable[str]) -> list[str]:
        """Return the paths of those of these LUNs that have one host each."""
        names_ = set(luns) - set(_LUNS.values())
        return [f"{self.group}/lun/{name}" for name in sorted(names_)]

    def is_linked(self, lun: str) -> bool:
        """Whether a LUN of one host leads to the writers' backstore."""
        behind = _behind(f"{lun}/{self.name}")
        return behind is not None and behind == self.writers_backstore()

    def writers_backstore(self) -> str | None:
        """Return the path of the writers' backstore, whoever has created it."""
        return _behind(self.backstore_link(Role.WRITERS))

    def backstore_link(self, role: Role) -> str:
        """Return the path of the backstore through the LUN's link."""
        link = f"{self.lun(role)}/{self.name}"
        if role is Role.READERS or self._has_our_link():
            return link
        return next(filter(self._may_take, _linked(self.lun(role))), link)

    def acl(self, initiator: str) -> str:
        """Return the path of an initiator's ACL."""
        return f"{self.group}/acls/{initiator}"

    def acls(self) -> list[str]:
        """Return the initiators that have an ACL."""
        return names(self.group + "/acls")

    def enabled(self) -> bool:
        """Whether hosts can log in. A target is enabled last."""
        return read_or_empty(self.group + "/enable") == "1"

    def backstore(self, role: Role) -> str | None:
        """Return the path of the backstore that a LUN is linked to, or None."""
        return self._named(_behind(self.backstore_link(role)), role)

    def cinder_backstore(self) -> str | None:
        """Return the writers' backstore, if Cinder's LVM driver has created it."""
        if self._has_our_link():
            return None
        link = self.backstore_link(Role.WRITERS)
        return None if os.path.basename(link) == self.name else _behind(link)

    def foreign_parts(self) -> list[str]:
        """Return the names of what another program has put into it.

        A link of the writers' LUN with our name is ours, and so is the target.
        """
        if self._has_our_link():
            return []
        groups = [name for name in names(self.path) if name.startswith("tpgt_")]
        ours = {self.backstore_link(role) for role in Role}
        linked = [
            link
            for group in groups
            for lun in names(f"{self.path}/{group}/lun")
            for link in _linked(f"{self.path}/{group}/lun/{lun}")
        ]
        parts = [
            _behind(link)
            for link in linked
            if link not in ours and not self._is_of_host(link)
        ]
        if groups and not linked:  # half created, or half removed
            backstores_of_cinder = cinder_targets.existing(self.volume_id, self.prefix)
            parts += [path for path in backstores_of_cinder if not self.may_take(path)]
        others = [name for name in groups if not self.group.endswith(f"/{name}")]
        return [os.path.basename(path) for path in parts if path] + others

    def unknown_hosts(self) -> set[str]:
        """Return the hosts that are logged in without an ACL, or some of very many."""
        sessions = read_or_empty(self.group + "/dynamic_sessions")
        return {name for name in re.split("[\n\0]", sessions) if name}

    def sessions(self) -> int:
        """Return how many sessions all hosts have, closing ones too."""
        path = self.path + "/fabric_statistics/iscsi_instance/sessions"
        return int(read_or_empty(path) or 0)

    def count_hosts(self) -> int:
        """Return how many ACLs there are, or 0. It takes no lock of their directory.

        A directory has a link for each in it (configfs_create_dir calls inc_nlink).
        """
        try:
            return max(0, os.stat(self.group + "/acls").st_nlink - 2)
        except FileNotFoundError:
            return 0

    def may_take(self, path: str) -> bool:
        """Whether a backstore is of Cinder's LVM driver, and may become ours."""
        return self.takes_over is not None and cinder_targets.may_take(
            path, self.volume_id, self.prefix, self.takes_over
        )

    def serial(self) -> str:
        """Return the serial number that its LUNs should have."""
        path = self.cinder_backstore()
        return backstores.serial_of(path) if path else self.volume_id

    def left_by_cinder(self) -> list[str]:
        """Return backstores of Cinder's LVM driver that may become ours."""
        if self.takes_over is None:
            return []
        paths = cinder_targets.existing(self.volume_id, self.prefix)
        return [path for path in paths if self.may_take(path)]

    def prefix_for(self, group: str | None) -> str:
        """Return what the name of a new backstore starts with, besides ``volume-``."""
        takes = self.takes_over and group and self.takes_over(group)
        return self.prefix if takes else ""

    def has_disk(self, wanted: str) -> bool:
        """Whether the writers' backstore has the disk of that identity open."""
        if self._identity == wanted:
            return True
        return backstores.has_disk(self.backstore_link(Role.WRITERS), wanted)

    def _has_our_link(self) -> bool:
        """Whether the writers' LUN has a link with our name.

        Once it has, it is not asked again: only lunshare removes this link, and then
        the target is ours as well. What is read through the link is kept, so that one
        read tells both.
        """
        if not self._is_linked:
            link = f"{self.lun(Role.WRITERS)}/{self.name}"
            self._identity = backstores.stated_identity(link)
            self._is_linked = self._identity != "" or os.path.lexists(link)
        return self._is_linked

    def _is_of_host(self, link: str) -> bool:
        """Whether it is the link of a LUN of one host, if LUN 0 has lost its own."""
        is_named = os.path.basename(link) == self.name
        return is_named and self._named(_behind(link), Role.WRITERS) is not None

    def _named(self, path: str | None, role: Role) -> str | None:
        own_names = (
            backstores.name_of(self.volume_id, role, start)
            for start in ("", self.prefix)
        )
        return path if path and os.path.basename(path) in own_names else None

    def _may_take(self, link: str) -> bool:
        path = _behind(link)
        return path is not None and self.may_take(path)


def _linked(lun: str) -> list[str]:
    return [f"{lun}/{name}" for name in links(lun)]


def _behind(link: str) -> str | None:
    """Return the path of the backstore to which a link leads; None without a link."""
    try:
        hba, name = os.readlink(link).rsplit("/", 2)[1:]
    except OSError:
        return None
    return f"{CORE}/{hba}/{name}"
