# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare-backup``: a copy of the database, while the daemon runs.

It runs as the daemon's user, never as root: the files beside a database that is
being opened are that user's to choose.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

from lunshare.agent.assemble import database_url
from lunshare.agent.conf import opts
from lunshare.agent.db import backup
from lunshare.agent.errors import AgentError, Invalid


def main(argv: Sequence[str] | None = None) -> int:
    """Make one copy, then delete the oldest; the answer is the exit code."""
    asked = _parser().parse_args(argv)
    conf = cfg.ConfigOpts()
    opts.register(conf)
    try:
        conf(args=["--config-file", asked.config_file], project="lunshare")
        source = backup.path_of(database_url(conf))
        _need_owner(source)
        made = backup.copy(source, asked.to)
        backup.expire(asked.to, asked.keep)
    except (AgentError, cfg.Error, OSError) as error:
        print(f"lunshare-backup: {error}", file=sys.stderr)
        return 1
    print(made)
    return 0


def _need_owner(source: Path) -> None:
    """Root opens nothing in a directory whose owner may put links and journals there.

    :raises Invalid: says how to run it.
    """
    owner = source.parent.stat().st_uid
    if os.geteuid() == 0 and owner:
        raise Invalid(
            f"root does not open {source}, which user {owner} may have planted:"
            f" run it as that user, as the unit does"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lunshare-backup", description=__doc__)
    parser.add_argument("--config-file", default="/etc/lunshare/lunshare.conf")
    parser.add_argument(
        "--to", type=Path, required=True, help="directory of the copies; it must exist"
    )
    parser.add_argument(
        "--keep", type=_count, default=30, help="copies that stay (default: 30)"
    )
    return parser


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")


if __name__ == "__main__":
    sys.exit(main())
