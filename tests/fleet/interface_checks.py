# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: the driver's class beside Cinder's interface classes.

Prints one JSON object. Cinder's own compliance check compares methods of the class
object, of which a driver has almost none, so it passes nearly every class; this also
compares the arguments of each method.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

from cinder import interface, objects
from cinder.common import config  # noqa: F401 - registers Cinder's options
from cinder.interface import (
    util,
    volume_consistencygroup_driver,
    volume_driver,
    volume_group_driver,
    volume_manageable_driver,
    volume_snapshot_revert,
    volume_snapshotmanagement_driver,
)
from cinder.volume import configuration
from cinder.volume import driver as cinder_base
from oslo_config import cfg
from oslo_utils import importutils

_MODULES = (
    volume_driver,
    volume_manageable_driver,
    volume_snapshot_revert,
    volume_snapshotmanagement_driver,
    volume_group_driver,
    volume_consistencygroup_driver,
)


def interfaces() -> Iterator[type]:
    """Cinder's interface classes of volume drivers."""
    for module in _MODULES:
        for found in vars(module).values():
            if inspect.isclass(found) and found.__module__ == module.__name__:
                yield found


def verbs(of: type) -> dict[str, Any]:
    """The public methods that an interface names."""
    found = inspect.getmembers(of, inspect.isfunction)
    return {name: verb for name, verb in found if not name.startswith("_")}


def wrong_arguments(driver: type, of: type) -> list[str]:
    """The methods that cannot be called as the interface calls them."""
    wrong = []
    for name, verb in verbs(of).items():
        given = [each for each in inspect.signature(verb).parameters if each != "self"]
        if isinstance(inspect.getattr_static(driver, name, None), property):
            continue  # as in Cinder's base class
        try:
            inspect.signature(getattr(driver, name)).bind(None, *given)
        except (AttributeError, TypeError) as error:
            wrong.append(f"{name}: {error}")
    return wrong


def inherited(driver: type) -> list[str]:
    """The methods of the interfaces that the driver has from Cinder's base class."""
    names = {name for each in interfaces() for name in verbs(each)}
    base = cinder_base.VolumeDriver
    return sorted(n for n in names if getattr(driver, n) is getattr(base, n, None))


def refused(driver: Any, names: list[str]) -> list[str]:
    """Those of them that raise NotImplementedError, as Cinder's managers expect."""
    found = []
    for name in names:
        verb = getattr(driver, name)
        if not callable(verb):  # a property
            continue
        needed = [
            parameter
            for parameter in inspect.signature(verb).parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and parameter.default is parameter.empty
        ]
        try:
            verb(*[None] * len(needed))
        except NotImplementedError:
            found.append(name)
        except Exception:  # it does something with its arguments
            continue
    return found


def options(*modules: Any) -> list[str]:
    """The names of the options in these modules of Cinder's drivers."""
    lists = [
        found
        for module in modules
        for name, found in vars(module).items()
        if name.endswith("opts") and isinstance(found, list)
    ]
    return sorted({option.dest for found in lists for option in found})


def main(argv: list[str]) -> None:
    """``argv``: a cinder.conf with the sections ours and theirs, and their order."""
    file, *order = argv
    objects.register_all()
    from cinder.volume import manager  # it needs the objects
    from cinder.volume.drivers import lvm, nfs, remotefs

    cfg.CONF(["--config-file", file], project="cinder")
    classes = {
        "ours": "lunshare.cinder.LunshareDriver",
        "theirs": "cinder.volume.drivers.lvm.LVMVolumeDriver",
    }
    made = {}
    for name in order:
        section = configuration.Configuration(
            manager.volume_backend_opts, config_group=name
        )
        made[name] = importutils.import_object(classes[name], configuration=section)
    ours = made["ours"]
    names = inherited(type(ours))
    found = {
        "registered": type(ours) in interface._volume_register,
        "listed": type(ours).__name__ in [str(d) for d in util.get_volume_drivers()],
        "compliant": [c.__name__ for c in interfaces() if issubclass(type(ours), c)],
        "interfaces": [c.__name__ for c in interfaces()],
        "wrong": [
            each for c in interfaces() for each in wrong_arguments(type(ours), c)
        ],
        "inherited": names,
        "refused": refused(ours, names),
        "lvm_type": {
            "ours": ours._made.options["lvm_type"],
            "theirs": made["theirs"].configuration.lvm_type,
        },
        "options": options(cinder_base, lvm, nfs, remotefs),
        "chap": ours._made.options["use_chap_auth"],
        "address": ours._made.options["target_ip_address"],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
