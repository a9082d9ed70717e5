# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Calls methods of a client's object, one per line of the input.

A line is [method, arguments, keyword arguments]; the answer is [value, null], or
[null, "Error: text"]. The first argument of the program says which object it is, the
rest is for its construction.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def main() -> None:
    """Answer until the end of the input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    call = _CLIENTS[sys.argv[1]](*sys.argv[2:])
    for line in sys.stdin:
        method, words, named = json.loads(line)
        try:
            answer = [_plain(call(method, words, named)), None]
        except Exception as error:
            answer = [None, f"{type(error).__name__}: {error}"]
        answers.write(json.dumps(answer, default=str) + "\n")


def _sdk() -> Callable[[str, list[Any], dict[str, Any]], Any]:
    """The proxy of Block Storage; its cloud is in the environment.

    An argument {"found": [method, arguments, keyword arguments]} is what that method
    returns: some methods need an object of the SDK.
    """
    openstack: Any = importlib.import_module("openstack")
    proxy = openstack.connect(cloud="envvars").block_storage

    def call(method: str, words: list[Any], named: dict[str, Any]) -> Any:
        given = (
            call(*word["found"]) if isinstance(word, dict) and "found" in word else word
            for word in words
        )
        return getattr(proxy, method)(*given, **named)

    return call


def _nova(config: str, project: str) -> Callable[[str, list[Any], dict[str, Any]], Any]:
    """What nova-compute calls: with the token of a user, or as an administrator."""
    nova: Any = importlib.import_module("nova.conf")
    nova.CONF([], project="nova", default_config_files=[config])
    contexts: Any = importlib.import_module("nova.context")
    cinder: Any = importlib.import_module("nova.volume.cinder")
    context = contexts.RequestContext(
        user_id="nova",
        project_id=project,
        is_admin=True,
        auth_token=os.environ.get("USER_TOKEN"),
    )
    api = cinder.API()
    return lambda method, words, named: getattr(api, method)(context, *words, **named)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if inspect.isgenerator(value) or isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value


_CLIENTS: Mapping[str, Callable[..., Callable[..., Any]]] = {
    "openstacksdk": _sdk,
    "nova": _nova,
}

if __name__ == "__main__":
    main()
