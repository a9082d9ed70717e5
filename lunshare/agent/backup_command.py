# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare-backup``: copy the database while the daemon runs.

It runs as the user of the daemon, never as root: that user controls the files that
are opened with the database.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

from lunshare.agent.conf import config_errors, opts
from lunshare.agent.db.sqlite import backup
from lunshare.agent.model.errors import AgentError, Invalid
from lunshare.agent.parts import database_url


def main(argv: Sequence[str] | None = None) -> int:
    """Write one copy, then delete the oldest ones; return the exit code."""
    options = _parser().parse_args(argv)
    conf = cfg.ConfigOpts()
    opts.register(conf)
    try:
        arguments = ["--config-file", options.config_file]
        with config_errors.readable_files(conf, arguments):
            conf(args=arguments, project="lunshare")
        with config_errors.known_references(conf):
            source = backup.path_of(database_url(conf))
        _refuse_root(source)
        copied = backup.copy(source, options.to)
        backup.expire(options.to, options.keep, copied)
    except (AgentError, cfg.Error, OSError) as error:
        print(f"lunshare-backup: {error}", file=sys.stderr)
        return 1
    print(copied)
    return 0


def _refuse_root(source: Path) -> None:
    """Refuse to run as root if another user owns the directory of the database.

    That user may have created links or journals there.

    :raises Invalid: names the user to run it as.
    """
    owner = source.parent.stat().st_uid
    if os.geteuid() == 0 and owner:
        raise Invalid(
            f"root does not open {source}, a file of user {owner}: run it as that"
            " user, as the unit does"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lunshare-backup", description=__doc__)
    parser.add_argument("--config-file", default="/etc/lunshare/lunshare.conf")
    parser.add_argument(
        "--to", type=Path, required=True, help="directory of the copies; it must exist"
    )
    parser.add_argument(
        "--keep", type=_count, default=30, help="number of copies to keep (default: 30)"
    )
    return parser


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")


if __name__ == "__main__":
    sys.exit(main())
