# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare``: the command line of an operator. It only uses the API."""

import importlib.util
import sys

if importlib.util.find_spec("lunshare.host") is None:  # a folder that was not there yet
    sys.exit(
        "lunshare: this environment is of an earlier version, whose folders have moved:"
        " install it again (in a checkout: make check, or pip install --editable .)"
    )
