# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare share``, ``attach``, ``mode``, ``lease``: volumes for other hosts.

Nothing half-made stays: where one host is refused, or a signal ends the command, the
attachments that it made are deleted, and so is the volume that ``share`` made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lunshare.agent.cli import consumer
from lunshare.agent.cli.client import NodeClient, Refused, Unreachable
from lunshare.agent.cli.commands import (
    DONE,
    PENDING,
    Result,
    attachment_id,
    count,
    hosts_of,
    volume_id,
)
from lunshare.agent.cli.end_signals import EndSignals
from lunshare.agent.cli.output import visible
from lunshare.agent.cli.table import table

_TYPE = "multiattach"
_SHARED = {"multiattach": "<is> True"}
_POLL_SECONDS, _RESTART_SECONDS = 0.2, 30.0
_NOT_FOUND = 404
#: Of one request; bytes of JSON, below osapi_max_request_body_size (112 KiB).
_MOST_HOSTS, _MOST_BYTES = 500, 100_000
_HOST = re.compile(r"(?P<host>[^=@]+)=(?P<initiator>[^=@]+)(@(?P<ip>[^=@]+))?")
Fields = dict[str, str]

HEAD = ("VOLUME", "HOST", "INITIATOR", "MODE", "STATUS", "ATTACHMENT")


def describe(parsers: dict[str, argparse.ArgumentParser]) -> None:
    """Add the arguments of these commands."""
    share, attach = parsers["share"], parsers["attach"]
    share.add_argument("size", metavar="SIZE", type=count, help="in GiB")
    share.add_argument("--name", help="the volume's name")
    share.add_argument(
        "--type",
        help="name or id of its volume type (default: one that many hosts may share)",
    )
    for verb in (share, attach):
        for mode in ("rw", "ro"):
            verb.add_argument(
                f"--{mode}",
                action="append",
                default=[],
                metavar="HOST=INITIATOR[@IP]",
                type=_connector,
                help=f"a host that gets it {mode}; may be repeated",
            )
        verb.add_argument(
            "--hosts-file",
            default=[],
            metavar="FILE",
            type=_hosts_file,
            help="more hosts, one a line: HOST=INITIATOR[@IP], and rw or ro; # begins a"
            " comment",
        )
    attach.add_argument("volume", metavar="VOLUME", help="id or name")
    attach.add_argument(
        "host",
        nargs="*",
        default=[],
        metavar="HOST=INITIATOR[@IP]",
        type=_connector,
        help="its name, and the initiator in its /etc/iscsi/initiatorname.iscsi; IP is"
        " what portal_firewall lets in",
    )
    attach.add_argument(
        "--mode", choices=("rw", "ro"), help="default: what the volume allows, rw"
    )
    parsers["detach"].add_argument("volume", metavar="VOLUME", help="id or name")
    parsers["detach"].add_argument(
        "--force",
        action="store_true",
        help="also a host that has the key of a SCSI reservation, which it loses",
    )
    parsers["detach"].add_argument(
        "host",
        nargs="*",
        metavar="HOST",
        help="its name, initiator, or attachment's id",
    )
    parsers["detach"].add_argument(
        "--all", action="store_true", help="every host of the volume"
    )
    for name in ("mode", "lease", "renew"):
        parsers[name].add_argument("volume", metavar="VOLUME", help="id or name")
        parsers[name].add_argument(
            "host", metavar="HOST", help="its name, initiator, or attachment's id"
        )
    parsers["lease"].add_argument(
        "--ttl", type=count, required=True, metavar="SECONDS", help="until it ends"
    )
    parsers["lease"].add_argument(
        "--next",
        dest="then",
        action="store_const",
        const="next",
        help="let the next of lunshare:writers write then",
    )
    parsers["mode"].add_argument(
        "mode", metavar="MODE", choices=("rw", "ro"), help="rw or ro"
    )
    parsers["mode"].add_argument(
        "--immediate",
        action="store_true",
        help="with ro: do not wait for the writes in flight; they may still land",
    )


def share(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Create a volume and attach hosts to it; print how each logs in."""
    hosts = _hosts(arguments)
    fields = {"size": arguments.size, "name": arguments.name}
    fields["volume_type"] = arguments.type or _shared_type(node)
    with _undone() as undo:
        with undo.held():
            volume = node.post("/volumes", {"volume": fields})["volume"]
            undo.step(f"volume {volume['id']}", lambda: _delete(node, volume["id"]))
        _wait_until_available(node, volume["id"])
        rows = _attach(node, volume["id"], hosts, undo)
    return Result({"volume": volume["id"], "attachments": rows}, _text(rows))


def attach(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Attach more hosts to a volume, all or none; print how each logs in."""
    hosts = [_sent(host, arguments.mode) for host in arguments.host]
    hosts += _hosts(arguments)
    if not hosts:
        raise Refused("no host is named: give HOST=INITIATOR, or --hosts-file")
    volume = volume_id(node, arguments.volume)
    with _undone() as undo:
        rows = _attach(node, volume, hosts, undo)
    return Result({"volume": volume, "attachments": rows}, _text(rows))


def detach(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """End the access of hosts to a volume."""
    volume = volume_id(node, arguments.volume)
    lines = hosts_of(node, volume)
    rows = [attachment_id(lines, host) for host in arguments.host]
    if arguments.all:
        rows = [str(line["attachment_id"]) for line in lines if line["attachment_id"]]
    if not rows:
        raise Refused("no host is named: give HOST, or --all for a volume with hosts")
    rows = list(dict.fromkeys(rows))
    for start in range(0, len(rows), _MOST_HOSTS):
        _detach(node, volume, rows[start : start + _MOST_HOSTS], arguments.force)
    said = [f"attachment {row} is deleted: its host has no access" for row in rows]
    return Result({"volume_id": volume, "attachment_ids": rows}, "\n".join(said))


def mode(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Change the mode of a host that has a volume; print what the host has to do.

    ro is answered when its writes in flight have landed, and no other one can.
    """
    volume = volume_id(node, arguments.volume)
    row = attachment_id(hosts_of(node, volume), arguments.host)
    fields = {"mode": arguments.mode}
    if arguments.immediate:
        fields["fence"] = "immediate"
    answer = node.put(f"/attachments/{row}", {"attachment": fields})["attachment"]
    head = ("ATTACHMENT", "MODE", "FENCE", "REASON")
    keys = ("id", "attach_mode", "fence", "fence_reason")
    text = table(head, [[answer.get(key) for key in keys]])
    steps = [f"The host must {answer['host_must']}."]
    pending = answer.get("fence") == "fence pending"
    return Result(answer, "\n".join([text, *steps]), PENDING if pending else DONE)


def lease(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Let a host that has a volume write for a while, or as long as it is renewed."""
    lease = {"ttl": arguments.ttl, "then": arguments.then}
    return _leased(node, arguments, "", {"attachment": {"mode": "rw", "lease": lease}})


def renew(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Renew the lease of a host, before it has ended."""
    return _leased(node, arguments, "/lease", {"lease": {}})


def _leased(
    node: NodeClient, arguments: argparse.Namespace, end: str, body: dict[str, Any]
) -> Result:
    volume = volume_id(node, arguments.volume)
    row = attachment_id(hosts_of(node, volume), arguments.host)
    answer = node.put(f"/attachments/{row}{end}", body)["attachment"]
    keys = ("ttl", "then", "status", "seconds_left")
    head = ("ATTACHMENT", "MODE", "TTL", "THEN", "STATUS", "LEFT")
    line = [answer["id"], answer["attach_mode"], *(answer["lease"][k] for k in keys)]
    return Result(answer, table(head, [line]))


def _shared_type(node: NodeClient) -> str:
    """Return the name of a type whose volumes many hosts may have; create it if none.

    :raises Refused: there is none, and this user may not create one.
    """
    types = node.get("/types?is_public=None")["volume_types"]
    names = sorted(
        kind["name"]
        for kind in types
        if kind.get("extra_specs", {}).get(_TYPE) == _SHARED[_TYPE]
    )
    if names:
        return _TYPE if _TYPE in names else str(names[0])
    fields = {"name": _TYPE, "extra_specs": _SHARED}
    try:
        node.post("/types", {"volume_type": fields})
    except Refused as error:
        raise Refused(
            f"there is no volume type with {_TYPE}='<is> True', and it cannot be"
            f" created ({error}): let an administrator create it, or give --type"
        ) from None
    return _TYPE


def _delete(node: NodeClient, volume: str) -> None:
    """Delete a volume, also one that is being created, with all attachments."""
    path, query = f"/volumes/{volume}", urlencode({"volume_id": volume})
    while node.get(path)["volume"]["status"] == "creating":
        time.sleep(_POLL_SECONDS)
    for row in node.get(f"/attachments?{query}")["attachments"]:
        node.delete(f"/attachments/{row['id']}")
    node.delete(path)


def _wait_until_available(node: NodeClient, volume: str) -> None:
    """:raises Refused: it could not be created; why."""
    while True:
        row = node.get(f"/volumes/{volume}")["volume"]
        if row["status"] == "available":
            return
        if row["status"] != "creating":
            why = row.get("status_reason") or "see lunshare messages"
            raise Refused(f"the volume could not be created: {row['status']}, {why}")
        time.sleep(_POLL_SECONDS)


def _hosts(arguments: argparse.Namespace) -> list[Fields]:
    hosts = [_sent(host, "rw") for host in arguments.rw]
    hosts += [_sent(host, "ro") for host in arguments.ro]
    return hosts + list(arguments.hosts_file)


def _sent(connector: Fields, mode: str | None) -> Fields:
    return {**connector, "mode": mode} if mode else connector


def _attach(
    node: NodeClient, volume: str, hosts: Sequence[Fields], undo: _Undo
) -> list[dict[str, Any]]:
    """Return the attachments of hosts, which may log in now."""
    rows = []
    for part in _parts(hosts):
        body = {"lunshare:attach": {"key": str(uuid.uuid4()), "hosts": part}}
        with undo.held():
            answer = node.post(f"/volumes/{volume}/action", body)["attachments"]
            ids = [str(row["id"]) for row in answer]
            undo.step(
                f"attachment {', '.join(ids)}", partial(_take_back, node, volume, ids)
            )
        rows += [
            {**row, "connector": host} for row, host in zip(answer, part, strict=True)
        ]
    return rows


def _parts(hosts: Sequence[Fields]) -> Iterator[list[Fields]]:
    """Yield them in parts that the node takes in one request."""
    part, size = list[Fields](), 0
    for host in hosts:
        length = len(json.dumps(host)) + 2
        if part and (len(part) == _MOST_HOSTS or size + length > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(host)
        size += length
    if part:
        yield part


def _detach(
    node: NodeClient, volume: str, ids: Sequence[str], force: bool = False
) -> None:
    body = {"lunshare:detach": {"attachments": list(ids), "force": force}}
    node.post(f"/volumes/{volume}/action", body)


def _take_back(node: NodeClient, volume: str, ids: Sequence[str]) -> None:
    """Detach them; where one is gone, the others alone."""
    try:
        _detach(node, volume, ids)
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise
        for ident in ids:
            _patiently(partial(node.delete, f"/attachments/{ident}"))


def _text(rows: Sequence[dict[str, Any]]) -> str:
    cells = [
        [
            row["volume_id"],
            row["connector"]["host"],
            row["connector"]["initiator"],
            row["attach_mode"],
            row["status"],
            row["id"],
        ]
        for row in rows
    ]
    lines = [table(HEAD, cells)]
    for row in rows:
        lines += ["", consumer.iscsiadm(row, row["connector"]).rstrip()]
    return "\n".join(lines)


class _Undo:
    """What a command has made, and how each of it is taken back."""

    def __init__(self) -> None:
        self._signals, self._steps = EndSignals(), dict[str, Callable[[], None]]()
        self.raised, self.held = self._signals.raised, self._signals.held

    def step(self, name: str, take_back: Callable[[], None]) -> None:
        """Note what was made. It is gone where ``take_back`` is refused with 404."""
        self._steps[name] = take_back

    def run(self) -> None:
        """Take back all, the latest first; print what could not be."""
        for name, take_back in reversed(self._steps.items()):
            try:
                _patiently(take_back)
            except (Refused, Unreachable) as error:
                said = visible(f"not undone: {name} stays: {error}")
                print(f"lunshare: {said}", file=sys.stderr)


@contextlib.contextmanager
def _undone() -> Iterator[_Undo]:
    """Take back the steps of a block that fails, or that a signal ends."""
    undo = _Undo()
    with undo.raised():
        try:
            yield undo
        except BaseException:
            undo.run()
            raise


def _patiently(take_back: Callable[[], object]) -> None:
    """Try until the node answers: it may be starting again.

    :raises Refused: it refuses, but not because it is gone.
    :raises Unreachable: it has not answered for a while.
    """
    until = time.monotonic() + _RESTART_SECONDS
    while True:
        try:
            take_back()
            return
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise
            return
        except Unreachable:
            if time.monotonic() > until:
                raise
        time.sleep(_POLL_SECONDS)


def _connector(text: str) -> dict[str, str]:
    match = _HOST.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST=INITIATOR or HOST=INITIATOR@IP, such as"
            " alpha=iqn.1993-08.org.debian:01:a@192.0.2.7"
        )
    return {key: value for key, value in match.groupdict().items() if value}


def _hosts_file(path: str) -> list[Fields]:
    """Return the hosts of a file, one a line.

    :raises ArgumentTypeError: names the line, or why the file cannot be read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path!r} cannot be read: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        try:
            if words:
                hosts.append(_host_of_line(*words))
        except (argparse.ArgumentTypeError, TypeError):
            raise argparse.ArgumentTypeError(
                f"line {number} of {path!r} is not HOST=INITIATOR[@IP], and rw or ro"
            ) from None
    return hosts


def _host_of_line(host: str, mode: str | None = None) -> Fields:
    if mode not in (None, "rw", "ro"):
        raise argparse.ArgumentTypeError(mode)
    return _sent(_connector(host), mode)
