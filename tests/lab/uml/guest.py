# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One quick guest: it boots, runs one command, and ends.

It shares a directory with the host (hostfs): the tree and the scripts in, the command's
output and exit code out.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from tests.lab import node
from tests.lab.steps import LabError, last, sh

HERE = Path(__file__).resolve().parent
BOOT_SECONDS = 240  # 4 on an idle machine; it may be busy
POLL_SECONDS = 0.2
MEMORY = "3G"
# A namespace of process ids ends with its first process. The guest's processes are
# processes of the host, and would survive a kill -9 of their kernel.
ALONE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


class UmlGuest:
    """A guest; ``directory`` is its /host.

    ``network``: DEVICE=ADDRESS/PREFIX, a tap device of this machine and the guest's
    address there; without it, the guest has no network card. It runs on ``processor``
    of this machine only (processor.py).
    """

    def __init__(
        self,
        kernel: Path,
        disks: Sequence[Path],
        directory: Path,
        *,
        network: str,
        processor: int,
    ) -> None:
        self._kernel, self._disks, self._directory = kernel, disks, directory
        self._processor = processor
        self._tap, _, self._address = network.partition("=")
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self, command: Sequence[str], *, bare: bool) -> None:
        """Write its command and files into its directory."""
        line = f"cd /srv/lunshare && exec env PATH={node.PATH} {shlex.join(command)}\n"
        (self._directory / "command").write_text(line)
        what = "bare" if bare else "node"
        head = f"NOW={time.time():.3f} WHAT={what} ADDRESS={self._address}\n"
        (self._directory / "setup").write_text(head + (HERE / "setup").read_text())
        (self._directory / "build").mkdir()
        (self._directory / "out").touch()
        shutil.copy(HERE.parent / "prepare", self._directory)
        self._link()

    def run(self) -> int:
        """Boot it, print its output, and return the command's exit code."""
        with open(self._directory / "console", "wb") as console:
            self._process = subprocess.Popen(
                self._command(),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,  # Ctrl-C is for this process only
                close_fds=False,  # with cache.py's locks
            )
        with open(self._directory / "out", "rb") as output:
            while not self._has_ended():
                _pass_on(output)
                time.sleep(POLL_SECONDS)
            _pass_on(output)
        return self._code()

    def kill(self) -> None:
        """End it in any state."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def _has_ended(self) -> bool:
        if self._process is None:
            raise LabError("the guest is not running")
        return (self._directory / "rc").exists() or self._process.poll() is not None

    def _code(self) -> int:
        code = self._directory / "rc"
        if not code.exists() or (self._directory / "failed").exists():
            text = (self._directory / "console").read_text(errors="replace")
            raise LabError(f"the quick guest ended\n{last(text)}")
        return int(code.read_text())

    def _link(self) -> None:
        """Let the kernel use the libc that it needs.

        Started by its loader ("ld.so linux"), it ends with "Too few physical memory":
        it takes the end of the loader for the end of itself.
        """
        libraries = self._kernel / "lib"
        sh(
            [
                *("patchelf", "--output", self._directory / "linux"),
                *("--set-interpreter", libraries / "ld-linux-x86-64.so.2"),
                *("--set-rpath", libraries, self._kernel / "linux"),
            ]
        )

    def _command(self) -> list[str]:
        """Its kernel, and that kernel's parameters.

        gro=1: buffers for frames of 64 KiB. Without it, guests send each other such
        frames and lose them; a copy of a volume had 0.3 MB/s. pty.legacy_count=0: the
        kernel makes 512 terminals that nobody uses, and each command of LVM looks at
        all of /dev; without them an lvs takes 0.2 instead of 0.3 s (6.12.113).
        """
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        disks = (
            f"ubd{number}={self._directory}/written{number},{disk}"
            for number, disk in enumerate(self._disks)
        )
        return [
            *("taskset", "--cpu-list", str(self._processor)),
            *("setpriv", "--pdeathsig", "KILL", "--", *ALONE, *root, "--"),
            *(str(self._directory / "linux"), f"mem={MEMORY}", *disks),
            *("root=/dev/ubda", "rw", "net.ifnames=0", f"lab={self._directory}"),
            *(
                "pty.legacy_count=0",
                "quiet",
                "systemd.show_status=no",
                "seccomp=on",
                f"uml_dir={self._directory}",
            ),
            *("con=null", "con0=null,fd:1", "con1=null", "ssl=null"),
            *([f"vec0:transport=tap,ifname={self._tap},gro=1"] if self._tap else []),
        ]

    def _environment(self) -> dict[str, str]:
        """Its memory is a file in TMPDIR, which must not be on a disk."""
        own = {"TMPDIR": "/dev/shm", "HOME": str(self._directory)}
        return {**os.environ, **own, "LD_PRELOAD": str(self._kernel / "xstate.so")}


def _pass_on(output: BinaryIO) -> None:
    if new := output.read():
        sys.stdout.buffer.write(new)
        sys.stdout.flush()
