# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print etc/lunshare.conf.sample: ``make sample``. A test compares the file."""

from __future__ import annotations

import sys
from typing import TextIO

from oslo_config import cfg, generator


def write(out: TextIO) -> None:
    """Write the sample file from the options."""
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(["--namespace", "lunshare", "--wrap-width", "78"])
    generator.generate(conf, out)


if __name__ == "__main__":
    write(sys.stdout)
