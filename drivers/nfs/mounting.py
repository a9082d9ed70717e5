# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every command the NFS driver runs as root: those that mount a share.

Each shape has its line in rootwrap.d/nfs.filters, in the same order; a test
holds the two together.
"""

from __future__ import annotations

from lunshare.drivers.base import Root
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded, Misconfigured
from lunshare.drivers.share_options import Share

# The last word wins: whatever a line says, nothing on a share runs or is a device.
_ALWAYS = "nosuid,nodev,noexec"


class Mounting:
    """The commands on the mount points below one directory."""

    def __init__(self, root: Root, base: str, timeout: float) -> None:
        self._root, self._base, self._timeout = root, base, timeout

    def make_point(self, share: Share) -> None:
        """Make the directory that it is mounted on; nobody but root may look in."""
        point = share.point(self._base)
        self._root.run("mkdir", "-p", "-m", "0700", point, timeout=self._timeout)

    def mount(self, share: Share) -> None:
        """Mount it.

        :raises Misconfigured: with what mount said.
        """
        options = ",".join(filter(None, [share.options, _ALWAYS]))
        point = share.point(self._base)
        words = ("mount", "-t", "nfs", "-o", options, share.source, point)
        try:
            self._root.run(*words, timeout=self._timeout)
        except CommandFailed as error:
            raise Misconfigured(
                f"share {share.source} cannot be mounted: {error.stderr.strip()}",
                f"mend that; try it with: {' '.join(words)}",
            ) from error
        except DeadlineExceeded as error:
            raise silent(share, error.seconds) from error

    def unmount(self, share: Share) -> None:
        """Unmount it; it stays when something has a file of it open."""
        point = share.point(self._base)
        self._root.run("umount", point, timeout=self._timeout)


def silent(share: Share, seconds: float) -> Misconfigured:
    """What to say of a server that does not answer."""
    return Misconfigured(
        f"share {share.source} did not answer within {seconds:g} seconds",
        f"see whether {share.host} runs and can be reached (showmount, rpcinfo);"
        " I/O of hosts goes on by itself when it is back",
    )
