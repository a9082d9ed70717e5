# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: set up a backend as a user who may not use the helper.

Prints the error that cinder-volume gets, and the driver's log.
"""

from __future__ import annotations

import logging
import os
import sys

from cinder import exception, objects
from cinder.common import config  # noqa: F401 - registers Cinder's options
from cinder.volume import configuration
from oslo_config import cfg
from oslo_utils import importutils

_NOBODY = 65534


def main(file: str) -> None:
    """``file``: a cinder.conf with the section ours."""
    objects.register_all()
    from cinder.volume import manager  # it needs the objects

    logging.basicConfig(stream=sys.stdout, format="log: %(message)s", force=True)
    cfg.CONF(["--config-file", file], project="cinder")
    section = configuration.Configuration(
        manager.volume_backend_opts, config_group="ours"
    )
    made = importutils.import_object(
        "lunshare.cinder.LunshareDriver", configuration=section
    )
    if os.geteuid() == 0:
        os.seteuid(_NOBODY)
    made.do_setup(None)
    try:
        made.check_for_setup_error()
    except exception.VolumeBackendAPIException as error:
        print("error:", error)


if __name__ == "__main__":
    main(sys.argv[1])
