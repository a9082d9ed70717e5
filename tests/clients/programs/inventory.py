# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the commands or methods that a client has, as one JSON list."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def _cinder() -> Iterable[str]:
    shell: Any = importlib.import_module("cinderclient.shell").OpenStackCinderShell()
    versions: Any = importlib.import_module("cinderclient.api_versions")
    newest = versions.APIVersion(versions.MAX_VERSION)
    shell.get_subcommand_parser(newest, do_help=True, input_args=[])
    local = {"help", "bash-completion", "bash_completion"}
    return {*shell.subcommands} - local


def _openstack() -> Iterable[str]:
    found = importlib.metadata.entry_points(group="openstack.volume.v3")
    return [each.name.replace("_", " ") for each in found]


def _sdk() -> Iterable[str]:
    module = "openstack.block_storage.v3._proxy"
    return _methods(importlib.import_module(module).Proxy)


def _nova() -> Iterable[str]:
    return _methods(importlib.import_module("nova.volume.cinder").API)


def _methods(kind: type) -> Iterable[str]:
    functions = inspect.getmembers(kind, inspect.isfunction)
    return [n for n, f in functions if n in vars(kind) and not n.startswith("_")]


_CLIENTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "cinder": _cinder,
    "openstack": _openstack,
    "openstacksdk": _sdk,
    "nova": _nova,
}

if __name__ == "__main__":
    print(json.dumps(sorted(_CLIENTS[sys.argv[1]]())))
