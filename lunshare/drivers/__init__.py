# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers, target drivers, and the root helper that works for them.

This package imports nothing of the daemon, its database or its configuration files,
so another control plane can use the same drivers.
"""

import importlib.util
import sys

# A script of an environment that was installed when the helper was in this package.
if (
    sys.argv[0].endswith("/lunshare-helper")
    and importlib.util.find_spec("lunshare.helper") is None
):
    sys.exit(
        "lunshare-helper: this environment is of an earlier version, whose folders have"
        " moved: install it again (in a checkout: make check, or pip install"
        " --editable .)"
    )
