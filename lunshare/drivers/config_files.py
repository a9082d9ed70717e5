# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration files that oslo.config has read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from oslo_config import cfg


def paths(conf: cfg.ConfigOpts) -> list[str]:
    """Return them in the order of reading: ``config_file``, then ``config_dir``."""
    return listed(conf.config_file or (), conf.config_dir or ())


def listed(files: Iterable[str], directories: Iterable[str]) -> list[str]:
    """Return ``files``, then those in ``directories``, in the order of reading."""
    below = (
        str(file)
        for directory in map(Path, directories)
        for file in sorted(directory.glob("*.conf"))
    )
    return [*files, *below]
