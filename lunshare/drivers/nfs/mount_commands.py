# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that the NFS driver runs as root: mount and unmount of shares.

Each form of a command has a line in rootwrap.d/nfs.filters, in the same order; a test
compares the two.
"""

from __future__ import annotations

from lunshare.drivers.base import Root
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded, StorageLost
from lunshare.drivers.share_options import Share

# The last option wins. So nothing on a share is executed or is a device, and no program
# follows a link there, whatever options the operator gives. mount.nfs (nfs-utils 2.6.2)
# passes nosymfollow on as a flag, which Linux before 5.10 ignores.
_ALWAYS = "nosuid,nodev,noexec,nosymfollow"


class MountCommands:
    """The commands on the mount points below one directory."""

    def __init__(self, root: Root, base: str, timeout: float) -> None:
        self._root, self._base, self._timeout = root, base, timeout

    def create_mount_point(self, share: Share) -> None:
        """Create the directory of its mount point; only root may enter it."""
        point = share.point(self._base)
        self._root.run("mkdir", "-p", "-m", "0700", point, timeout=self._timeout)

    def mount(self, share: Share) -> None:
        """Mount it.

        :raises StorageLost: with the error message of mount.
        """
        options = ",".join(filter(None, [share.options, _ALWAYS]))
        point = share.point(self._base)
        words = ("mount", "-t", "nfs", "-o", options, share.source, point)
        try:
            self._root.run(*words, timeout=self._timeout)
        except CommandFailed as error:
            raise StorageLost(
                f"a share cannot be mounted: {error.stderr.strip()}; {share.source}",
                f"correct that; try it with: {' '.join(words)}",
            ) from error
        except DeadlineExceeded as error:
            raise no_answer(share, error.seconds) from error

    def unmount(self, share: Share) -> None:
        """Unmount it; this fails while a file of it is open."""
        point = share.point(self._base)
        self._root.run("umount", point, timeout=self._timeout)


def no_answer(share: Share, seconds: float) -> StorageLost:
    """Return the error for a server that does not answer."""
    return StorageLost(
        f"a share did not answer within {seconds:g} seconds: {share.source}",
        f"check whether {share.host} runs and can be reached (showmount, rpcinfo);"
        " I/O of hosts continues by itself when it answers again",
    )
