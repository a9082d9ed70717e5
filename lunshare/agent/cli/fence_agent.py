# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``fence_lunshare``: a fence agent of Pacemaker that takes the access of a host.

https://github.com/ClusterLabs/fence-agents/blob/main/doc/FenceAgentAPI.md

Options come from standard input, a line ``name=value`` for each, or from the command
line. ``reboot`` is ``off``: the node can not restart a host, and its access is given
back only by ``on``, which Pacemaker runs when the host has joined again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from lunshare.agent.cli.client import NodeClient, Refused, Unreachable, every

# As fencing.py of fence-agents has them.
# Not its code of wrong arguments: that is also what status says of a host that is off.
OK, FAILED, IS_OFF, LOGIN_DENIED, CONNECTION_LOST = range(5)
NOT_OFF, NOT_ON = 7, 6
_DENIED = (401, 403)
_NOT_FOUND, _BUSY = 404, 503
_LEAST_SECONDS = 1.0  # for one request
_PAUSE_SECONDS = 0.5
_DIGITS = 6  # of a number of seconds
_PATH = "/lunshare/fences"


class Option(NamedTuple):
    """One option: its kind, what it does, its default, and its other name."""

    kind: str
    what: str
    default: str | None = None
    other: str = ""


OPTIONS: Mapping[str, Option] = {
    "action": Option("string", "Fencing action", "off"),
    "plug": Option("string", "Host to fence: its name or its initiator", other="port"),
    "endpoint": Option(
        "string", "Address of the API: https://HOST:PORT/v3, http, or unix:PATH"
    ),
    "username": Option("string", "User of http_basic", other="login"),
    "password": Option("string", "Its password", other="passwd"),
    "token": Option("string", "Token of Keystone, instead of a user"),
    "cacert": Option("string", "File with the issuers of the node's certificate"),
    "writes_only": Option("boolean", "Take only writing, and let the host read", "0"),
    "power_timeout": Option("second", "Seconds until off or on has to be proven", "20"),
}
_OTHER = {option.other: name for name, option in OPTIONS.items() if option.other}
_TRUE = ("1", "yes", "on", "true")


class WrongOption(Exception):
    """An option is missing or not valid. The text names it."""


Options = dict[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _from_arguments(arguments) if arguments else _from_lines(sys.stdin)
        action = _ACTIONS.get(options["action"])
        if action is None:
            names = ", ".join(_ACTIONS)
            raise WrongOption(f"action {options['action']!r}: one of {names}")
        return action(options)
    except WrongOption as error:
        return _failed(str(error), FAILED)
    except Refused as error:
        return _failed(str(error), LOGIN_DENIED if error.status in _DENIED else FAILED)
    except Unreachable as error:
        return _failed(str(error), CONNECTION_LOST)


def _failed(sentence: str, code: int) -> int:
    print(f"fence_lunshare: {sentence}", file=sys.stderr)
    return code


def _from_lines(lines: Iterable[str]) -> Options:
    """Read the options as Pacemaker sends them; some, as nodename, are not ours."""
    try:
        texts = [line.strip() for line in lines if not line.startswith("#")]
    except UnicodeDecodeError:
        raise WrongOption("an option is not UTF-8: correct the device") from None
    pairs = [text.partition("=") for text in texts]
    options = {_OTHER.get(name, name): value.strip('"') for name, _, value in pairs}
    return _complete({name: options[name] for name in options if name in OPTIONS})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of an exit with 2, which says that a host is off."""
        raise WrongOption(message)


def _from_arguments(argv: Sequence[str]) -> Options:
    parser = _Parser(prog="fence_lunshare", description=_WHAT)
    for name, option in OPTIONS.items():
        names = [f"--{text}".replace("_", "-") for text in (name, option.other) if text]
        if name == "action":
            names.insert(0, "-o")
        if option.kind == "boolean":
            parser.add_argument(
                *names, dest=name, action="store_const", const="1", help=option.what
            )
        else:
            parser.add_argument(*names, dest=name, help=option.what)
    options = vars(parser.parse_args(argv))
    return _complete({name: text for name, text in options.items() if text is not None})


def _complete(given: Options) -> Options:
    defaults = {n: option.default for n, option in OPTIONS.items() if option.default}
    return defaults | {name: text for name, text in given.items() if text}


def _node(options: Options) -> NodeClient:
    """Return the node; the client reads the identity from the environment."""
    if "endpoint" not in options:
        raise WrongOption("endpoint is missing: give the address of the node's API")
    identity = {
        "OS_TOKEN": options.get("token"),
        "OS_USERNAME": options.get("username"),
        "OS_PASSWORD": options.get("password"),
        "OS_CACERT": options.get("cacert"),
    }
    for name, text in identity.items():
        os.environ.pop(name, None)
        if text:
            os.environ[name] = text
    return NodeClient(options["endpoint"], max(_seconds(options), _LEAST_SECONDS))


def _path(options: Options) -> str:
    if "plug" not in options:
        raise WrongOption("plug is missing: give the name of a host, or its initiator")
    try:
        return f"{_PATH}/{quote(options['plug'], safe='')}"
    except UnicodeEncodeError:
        raise WrongOption("plug is not UTF-8: give the name of a host") from None


def _seconds(options: Options) -> float:
    text = options["power_timeout"]
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS:
        return float(text)
    raise WrongOption("power_timeout: give a whole number of seconds")


def _takes_writes_only(options: Options) -> bool:
    return options["writes_only"].lower() in _TRUE


def _off(options: Options) -> int:
    body = {"fence": {"writes_only": _takes_writes_only(options)}}
    node, path = _node(options), _path(options)
    return _repeat(options, lambda: node.put(path, body), "fenced", NOT_OFF)


def _on(options: Options) -> int:
    node, path = _node(options), _path(options)
    return _repeat(options, lambda: node.delete(path), "unfenced", NOT_ON)


def _repeat(
    options: Options, request: Callable[[], Any], wanted: str, code: int
) -> int:
    """Send a request until the node has proven it, also to a node that restarts."""
    until = time.monotonic() + _seconds(options)
    while True:
        try:
            shown = request()["fence"]
            if shown["status"] == wanted:
                count = len(shown["volumes"])
                print(f"Success: {shown['host']} is {wanted}, {count} volumes")
                return OK
            reasons = [v["reason"] for v in shown["volumes"] if v["reason"]]
            failure = f"{shown['host']}: {shown['status']}: {'; '.join(reasons)}"
        except (Refused, Unreachable) as error:
            is_final = isinstance(error, Refused) and error.status != _BUSY
            if is_final or time.monotonic() >= until:
                raise
            failure = str(error)
        if time.monotonic() >= until:
            return _failed(failure, code)
        time.sleep(_PAUSE_SECONDS)


def _status(options: Options) -> int:
    """Print ON while the host may have what off takes, also while it is pending."""
    try:
        shown = _node(options).get(_path(options))["fence"]
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise
        shown = {"status": "unfenced", "fence": None}
    is_off = shown["status"] == "fenced"
    if not _takes_writes_only(options):
        is_off = is_off and shown["fence"] == "all"
    print(f"Status: {'OFF' if is_off else 'ON'}")
    return IS_OFF if is_off else OK


def _list(options: Options) -> int:
    """Print the hosts that have an attachment, or a fence."""
    node = _node(options)
    names = [fence["host"] for fence in every(node, "fences")]
    names += [host["host"] or "" for host in every(node, "hosts")]
    hosts = {name.lower(): name for name in names}
    for host in sorted(filter(None, hosts.values())):
        print(f"{host},")
    return OK


def _list_status(options: Options) -> int:
    """Print the hosts that are fenced."""
    for fence in every(_node(options), "fences"):
        print(f"{fence['host']},,{'OFF' if fence['status'] == 'fenced' else 'ON'}")
    return OK


def _monitor(options: Options) -> int:
    """See that the node answers, and lets this user fence."""
    _node(options).get(f"{_PATH}?limit=1")
    return OK


def _validate(options: Options) -> int:
    _node(options)
    _seconds(options)
    return OK


_WHAT = (
    "fence_lunshare is an I/O fencing agent: it takes the access of a host to every"
    " volume of one lunshare node, and succeeds when the target of that node has closed"
    " it. It does not restart the host: reboot is off. on gives the access back;"
    " Pacemaker runs it when the host has joined again (requires=unfencing). Configure"
    " one device for each storage node, all of them in one level of the topology."
)


def _metadata(options: Options) -> int:
    print('<?xml version="1.0" ?>')
    print('<resource-agent name="fence_lunshare" shortdesc="Fence agent for lunshare">')
    print(f"<longdesc>{escape(_WHAT)}</longdesc>")
    print("<vendor-url>https://docs.openstack.org/cinder/latest/</vendor-url>")
    print("<parameters>")
    for name, option in OPTIONS.items():
        _print_parameter(name, option)
        if option.other:
            _print_parameter(option.other, option, f' obsoletes="{name}"')
    print("</parameters>\n<actions>")
    print('\t<action name="on" automatic="1" />')
    for name in _ACTIONS:
        if name != "on":
            print(f'\t<action name="{name}" />')
    print("</actions>\n</resource-agent>")
    return OK


def _print_parameter(name: str, option: Option, more: str = "") -> None:
    required = int(name == "endpoint")
    default = f" default={quoteattr(option.default)}" if option.default else ""
    print(f'\t<parameter name="{name}" unique="0" required="{required}"{more}>')
    print(f'\t\t<getopt mixed="--{name.replace("_", "-")}" />')
    print(f'\t\t<content type="{option.kind}"{default} />')
    print(f'\t\t<shortdesc lang="en">{escape(option.what)}</shortdesc>')
    print("\t</parameter>")


_ACTIONS: Mapping[str, Callable[[Options], int]] = {
    "on": _on,
    "off": _off,
    "reboot": _off,
    "status": _status,
    "list": _list,
    "list-status": _list_status,
    "monitor": _monitor,
    "metadata": _metadata,
    "manpage": _metadata,
    "validate-all": _validate,
}


if __name__ == "__main__":
    sys.exit(main())
