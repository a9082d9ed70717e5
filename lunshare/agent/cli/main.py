# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of ``lunshare``: arguments, output and exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from lunshare.agent.cli import (
    commands,
    completion,
    connect,
    consumer,
    help_text,
    prove,
    share,
    users,
    why,
)
from lunshare.agent.cli.client import NodeClient, Refused, Unreachable
from lunshare.agent.cli.output import Unwritten, visible, write
from lunshare.agent.cli.progress import ProgressBar
from lunshare.host.initiator import InitiatorError

DEFAULT = "unix:/run/lunshared/api.sock"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    try:
        result = _run(arguments)
        write(result.shown(arguments.json))
    except (Refused, Unwritten) as error:
        return _failed(str(error), commands.REFUSED)
    except Unreachable as error:
        return _failed(str(error), commands.UNREACHABLE)
    except InitiatorError as error:
        return _failed(str(error), commands.HOST)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return int(result.code)


def _run(arguments: argparse.Namespace) -> commands.Result:
    """Run the command; ``arguments.bar`` shows how far it is."""
    node = NodeClient(arguments.endpoint)
    if arguments.command in (commands.hosts, users.run):
        result: commands.Result = arguments.command(node, arguments)
        return result  # they write to the terminal themselves
    with ProgressBar(arguments.command.__name__) as arguments.bar:
        result = arguments.command(node, arguments)
    return result


def _endpoint() -> str:
    endpoints = (os.environ.get(name) for name in ("LUNSHARE_ENDPOINT", "OS_ENDPOINT"))
    return next(filter(None, endpoints), DEFAULT)


def _failed(sentence: str, code: int) -> int:
    print(f"lunshare: {visible(sentence)}", file=sys.stderr)
    return code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = command_line()
    completion.answer(parser)
    if not all(map(_is_text, argv)):
        parser.error("a word of the command line is not UTF-8")
    return parser.parse_args(argv)


def _is_text(word: str) -> bool:
    """Whether it has no byte that Python could not decode."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def command_line() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="lunshare",
        description="Share volumes of a lunshare node among hosts, show its state, hand"
        " write\naccess over, fence hosts, recover and delete orphans, and connect this"
        " host.",
        epilog=help_text.of_all_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--endpoint",
        default=_endpoint(),
        help="http://HOST:PORT/v3, https, or unix:PATH (default: LUNSHARE_ENDPOINT,"
        f" else OS_ENDPOINT, else {DEFAULT}). OS_TOKEN, or OS_USERNAME and"
        " OS_PASSWORD, prove who you are; OS_CACERT is a file with the certificate of"
        " the node's issuer",
    )
    common.add_argument(
        "--json", action="store_true", help="print the answer of the node as JSON"
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    parsers = {}
    for command in (
        commands.pools,
        share.share,
        share.attach,
        share.detach,
        share.mode,
        share.lease,
        share.renew,
        consumer.consumer_config,
        commands.hosts,
        commands.verify,
        why.why,
        prove.prove,
        commands.handover,
        commands.fence,
        commands.unfence,
        commands.fences,
        commands.explain,
        commands.errors,
        commands.wipes,
        commands.messages,
        commands.orphans,
        commands.recover,
        commands.delete_orphan,
        connect.connect,
        connect.disconnect,
    ):
        name = command.__name__.replace("_", "-")
        verb = help_text.add_command(verbs, name, command, common)
        verb.set_defaults(command=command)
        parsers[name] = verb
    about = users.run.__doc__
    user = verbs.add_parser("user", help=about, description=about)
    user.set_defaults(command=users.run)
    users.describe(user, common)
    _explain(parsers["explain"])
    parsers["hosts"].add_argument(
        "volume", nargs="?", metavar="VOLUME", help="id or name (default: all volumes)"
    )
    parsers["hosts"].add_argument(
        "--watch", action="store_true", help="print them again every two seconds"
    )
    _verify(parsers["verify"])
    _handover(parsers["handover"])
    share.describe(parsers)
    consumer.describe(parsers["consumer-config"])
    why.describe(parsers["why"])
    prove.describe(parsers["prove"])
    for name in ("fence", "unfence"):
        parsers[name].add_argument(
            "host", metavar="HOST", help="its name or initiator, as in lunshare hosts"
        )
    parsers["fence"].add_argument(
        "--writes", action="store_true", help="take only writing: it may still read"
    )
    parsers["wipes"].add_argument(
        "--wait",
        action="store_true",
        help="wait until none is left; a terminal shows how far it is",
    )
    _orphans(parsers["recover"], parsers["delete-orphan"])
    connect.describe(parsers["connect"], parsers["disconnect"])
    parsers["messages"].add_argument(
        "--limit",
        type=commands.count,
        default=20,
        help="largest number of messages (default: 20)",
    )
    return parser


def _verify(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "volume", nargs="?", metavar="VOLUME", help="id or name (default: all volumes)"
    )
    either = verb.add_mutually_exclusive_group()
    either.add_argument(
        "--repair",
        action="store_true",
        help="put right what differs, and first close what lets a host do too much",
    )
    either.add_argument(
        "--report", action="store_true", help="only report what differs (the default)"
    )


def _handover(verb: argparse.ArgumentParser) -> None:
    forms = "a host, an initiator, or the id of an attachment"
    verb.add_argument("volume", metavar="VOLUME", help="id or name")
    verb.add_argument("--to", metavar="HOST", help=f"who may write then: {forms}")
    verb.add_argument(
        "--from",
        dest="source",
        metavar="HOST",
        help="who leaves (default: all writers)",
    )
    verb.add_argument(
        "--force",
        action="store_true",
        help="for a host that is dead: delete its attachment instead of making it ro",
    )


def _orphans(recover: argparse.ArgumentParser, delete: argparse.ArgumentParser) -> None:
    recover.add_argument("volume", metavar="ID", help="id of an orphan of kind disk")
    recover.add_argument("--name", help="the volume's name")
    recover.add_argument("--type", help="name or id of its volume type")
    delete.add_argument(
        "kind", choices=("export", "disk", "snapshot"), help="as in lunshare orphans"
    )
    delete.add_argument("id", metavar="ID", help="as in lunshare orphans")
    delete.add_argument("--yes", action="store_true", help="delete it")


def _explain(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--size", type=commands.count, required=True, help="in GiB")
    verb.add_argument("--type", help="name or id of the volume type")
    verb.add_argument("--zone", help="availability zone")


if __name__ == "__main__":
    sys.exit(main())
