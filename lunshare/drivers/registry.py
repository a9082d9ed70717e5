# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find a driver's class by its name in a backend section.

Drivers are entry points of installed packages, so anybody can add one;
docs/adding-a-driver.md shows how. Only that driver is imported.
"""

from __future__ import annotations

import ast
import linecache
import traceback
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from stevedore.driver import DriverManager
from stevedore.exception import NoMatches

from lunshare.drivers import base
from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.errors import Misconfigured

VOLUMES = "lunshare.drivers"
TARGETS = "lunshare.targets"

#: The section of CHANGELOG.md with the changes of our contract.
CHANGES = f"Contract {base.CONTRACT} of drivers"
_BASES = {VolumeDriver.__name__, TargetDriver.__name__}


def volume_driver(name: str) -> type[VolumeDriver]:
    """Return the volume driver of that name.

    :raises Misconfigured: it is unknown, cannot be imported, or has another contract.
    """
    driver: type[VolumeDriver] = _driver(VOLUMES, name, VolumeDriver)
    return driver


def target_driver(name: str) -> type[TargetDriver]:
    """Return the target driver of that name.

    :raises Misconfigured: it is unknown, cannot be imported, or has another contract.
    """
    driver: type[TargetDriver] = _driver(TARGETS, name, TargetDriver)
    return driver


def driver_names(group: str) -> tuple[str, ...]:
    """Return the names in ``VOLUMES`` or ``TARGETS``, sorted; imports no driver."""
    return tuple(sorted(metadata.entry_points(group=group).names))


def _driver(group: str, name: str, contract: type) -> Any:
    driver = _load(group, name)
    number = getattr(driver, "CONTRACT", base.CONTRACT)
    if number != base.CONTRACT:
        raise _other_contract(group, name, number)
    if not (isinstance(driver, type) and issubclass(driver, contract)):
        raise Misconfigured(
            f"driver {name!r} of {group} is not a {contract.__name__}",
            "ask the package that installed it",
        )
    return driver


def _other_contract(group: str, name: str, number: int) -> Misconfigured:
    newer = number > base.CONTRACT
    return Misconfigured(
        f"driver {name!r} of {group} was written for contract {number},"
        f" and this lunshare has contract {base.CONTRACT}",
        "upgrade lunshare, or install an older version of its package"
        if newer
        else f"install a version of its package for contract {base.CONTRACT};"
        f" CHANGELOG.md has what changed, under {CHANGES!r}",
    )


def _load(group: str, name: str) -> Any:
    try:
        return DriverManager(
            group, name, on_load_failure_callback=_raise_import_error
        ).driver
    except NoMatches as error:
        choice = ", ".join(driver_names(group)) or "none; is lunshare installed?"
        raise Misconfigured(
            f"driver {name!r} of {group} is unknown", f"choose one of: {choice}"
        ) from error


def _raise_import_error(
    manager: Any, entry_point: metadata.EntryPoint, error: BaseException
) -> None:
    group, name = manager.namespace, entry_point.name
    numbers = set(_contracts_in_source(error))
    if numbers and base.CONTRACT not in numbers:
        raise _other_contract(group, name, min(numbers)) from error
    if isinstance(error, ImportError) and _is_ours(error.name):
        raise Misconfigured(
            f"driver {name!r} of {group} imports a path of lunshare that this"
            f" lunshare does not have: {error}",
            "install a version of its package for this lunshare;"
            " docs/adding-a-driver.md has what a driver may import",
        ) from error
    raise Misconfigured(
        f"driver {name!r} of {group} cannot be imported"
        f" from {entry_point.value}: {error}",
        "install what is missing, or choose another driver",
    ) from error


def _is_ours(module: str | None) -> bool:
    """Whether a module has the name of a folder of lunshare, today or formerly."""
    return (module or "").partition(".")[0] in {"lunshare", "drivers", "agent"}


def _contracts_in_source(error: BaseException) -> Iterator[int]:
    """Yield the contracts of the drivers in the files whose import failed.

    A driver of another contract can fail before its class exists: contract 2 has
    other abilities than 1, and an unknown ability is a TypeError.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).startswith("lunshare."):
            continue
        lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and (number := _contract_of(node)):
                yield number


def _contract_of(driver: ast.ClassDef) -> int | None:
    """Return the contract in the source of a class; None if that does not show it."""
    for line in driver.body:
        match line:
            case (
                ast.Assign(targets=[ast.Name("CONTRACT")], value=value)
                | ast.AnnAssign(target=ast.Name("CONTRACT"), value=value)
            ):
                number = value.value if isinstance(value, ast.Constant) else None
                return number if isinstance(number, int) else None
    bases = {ast.unparse(node).rpartition(".")[2] for node in driver.bases}
    return base.Driver.CONTRACT if bases & _BASES else None
