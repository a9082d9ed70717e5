# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration files that oslo.config has read."""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg


def paths(conf: cfg.ConfigOpts) -> list[str]:
    """Return them in the order of reading: ``config_file``, then ``config_dir``."""
    directories = (Path(each) for each in conf.config_dir or ())
    found = (str(file) for each in directories for file in sorted(each.glob("*.conf")))
    return [*(conf.config_file or ()), *found]
