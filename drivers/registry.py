# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find a driver's class by its name in a backend section.

Drivers are entry points of installed packages, so anybody can add one;
docs/adding-a-driver.md shows how. Only that driver is imported.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from stevedore.driver import DriverManager
from stevedore.exception import NoMatches

from lunshare.drivers import base
from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.errors import Misconfigured

VOLUMES = "lunshare.drivers"
TARGETS = "lunshare.targets"


def volume_driver(name: str) -> type[VolumeDriver]:
    """Return the volume driver of that name.

    :raises Misconfigured: it is unknown, or cannot be imported.
    """
    found: type[VolumeDriver] = _driver(VOLUMES, name, VolumeDriver)
    return found


def target_driver(name: str) -> type[TargetDriver]:
    """Return the target driver of that name.

    :raises Misconfigured: it is unknown, or cannot be imported.
    """
    found: type[TargetDriver] = _driver(TARGETS, name, TargetDriver)
    return found


def driver_names(group: str) -> tuple[str, ...]:
    """Return the names in ``VOLUMES`` or ``TARGETS``, sorted; imports no driver."""
    return tuple(sorted(metadata.entry_points(group=group).names))


def _driver(group: str, name: str, contract: type) -> Any:
    found = _load(group, name)
    if not (isinstance(found, type) and issubclass(found, contract)):
        raise Misconfigured(
            f"driver {name!r} of {group} is not a {contract.__name__}",
            "ask the package that installed it",
        )
    if found.CONTRACT != base.CONTRACT:  # type: ignore[attr-defined]
        raise Misconfigured(
            f"driver {name!r} of {group} was written for contract {found.CONTRACT},"  # type: ignore[attr-defined]
            f" and this lunshare has contract {base.CONTRACT}",
            "install a version of its package for this lunshare, or upgrade lunshare",
        )
    return found


def _load(group: str, name: str) -> Any:
    try:
        return DriverManager(
            group,
            name,
            on_load_failure_callback=_raise_import_error,
        ).driver
    except NoMatches as error:
        choice = ", ".join(driver_names(group)) or "none; is lunshare installed?"
        raise Misconfigured(
            f"driver {name!r} of {group} is unknown", f"choose one of: {choice}"
        ) from error


def _raise_import_error(
    manager: Any, entry_point: metadata.EntryPoint, error: BaseException
) -> None:
    raise Misconfigured(
        f"driver {entry_point.name!r} of {manager.namespace} cannot be imported"
        f" from {entry_point.value}: {error}",
        "install what is missing, or choose another driver",
    ) from error
