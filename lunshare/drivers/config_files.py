# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration files that oslo.config has read."""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg


def paths(conf: cfg.ConfigOpts) -> list[str]:
    """Return them in the order of reading: ``config_file``, then ``config_dir``."""
    directories = (Path(name) for name in conf.config_dir or ())
    files = (
        str(file)
        for directory in directories
        for file in sorted(directory.glob("*.conf"))
    )
    return [*(conf.config_file or ()), *files]
