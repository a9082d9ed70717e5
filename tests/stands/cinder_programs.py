# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Cinder as pip installs it, and the commands that start its programs.

CINDER_RELEASE names another release than the one that the driver is written for.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from tests.lab.environment import FURTHER
from tests.stands import installed
from tests.stands.installed import required

SCHEDULER = "from cinder.cmd.scheduler import main; main()"
MANAGE = "from cinder.cmd.manage import main; main()"
VOLUME = "from cinder.cmd.volume import main; main()"
_UWSGI = "import pyuwsgi; pyuwsgi.run()"
# Beside it: a WSGI server, the clients of MariaDB and PostgreSQL, and what lunshare's
# drivers need (tests/fleet): pip finds versions that both allow.
_BESIDE = ["pyuwsgi>=2.0.30", "PyMySQL>=1.1", "psycopg2-binary>=2.9.10", *required()]


@functools.cache
def python() -> Path:
    """A Python with Cinder, installed once, in the lab's cache."""
    release = os.environ.get("CINDER_RELEASE")
    packages = [f"cinder=={release}"] if release else FURTHER["cinder"]
    return installed.venv("cinder-here", [*packages, *_BESIDE]) / "bin/python"


def command(
    program: str, config: Path, *more: str, interpreter: Path | None = None
) -> list[str]:
    """The words that start one of its programs with this configuration file."""
    words = [str(interpreter or python()), "-W", "ignore", "-c", program]
    return [*words, "--config-file", str(config), *more]


def api_command(
    config: Path,
    port: int,
    processes: int = 1,
    threads: int = 8,
    interpreter: Path | None = None,
) -> list[str]:
    """The words that start cinder-api on loopback, in uWSGI behind its own router."""
    return [
        *(str(interpreter or python()), "-W", "ignore", "-c", _UWSGI),
        *(f"--http=127.0.0.1:{port}", "--http-keepalive=600", "--http-timeout=600"),
        *("--http-auto-chunked", "--master", "--die-on-term", "--lazy-apps"),
        *("--enable-threads", "--need-app", "--disable-logging"),
        *(f"--processes={processes}", f"--threads={threads}"),
        "--module=cinder.wsgi.api:application",
        f"--pyargv=--config-file {config}",
    ]


if __name__ == "__main__":
    python()
