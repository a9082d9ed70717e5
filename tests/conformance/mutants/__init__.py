# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Broken fakes: each breaks one promise, and the kit must notice it.

Each mutant names the behaviour that must fail.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.conformance.mutants.caught import TABLES, Mutant

__all__ = ["TABLES", "Mutant"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
