# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of `run`: options, then one command for each boot of the guest."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lab.environment import FURTHER
from tests.lab.image import KERNELS

USAGE = "%(prog)s [options] -- CMD… [--reboot -- CMD…] [--cut -- CMD…]"
#: The quick guest: see tests/lab/uml.
UML = "uml"
#: A tap device of this machine, and the address that the guest has there.
NETWORK = r"[\w.-]{1,15}=[\da-f.:]+/\d{1,3}"
WHAT = "Run CMD as root on a storage node with lunshare: a fresh Debian guest in QEMU."
MORE = """CMD runs in /srv/lunshare, a copy of the working tree, with /opt/lunshare/bin
first in PATH; what it writes to /build appears in the repository's build/. --reboot
reboots the guest before the next CMD, --cut cuts its power and boots the same disk. The
first exit code other than 0 ends the run and is returned; 125 is the lab's own."""


@dataclass(frozen=True)
class Stage:
    """A command, and the action before it: "", "reboot" or "cut"."""

    before: str
    command: list[str]


@dataclass(frozen=True)
class Options:
    """One run."""

    kernel: str
    build: bool
    keep: bool
    bare: bool
    extra: Sequence[str]
    network: str
    stages: list[Stage]


def parse(words: Sequence[str]) -> Options:
    """Parse the options; ends the program with a usage message if they are invalid."""
    parser = _parser()
    at = words.index("--") if "--" in words else len(words)
    known = parser.parse_args(words[:at])
    stages = _stages(words[at + 1 :])
    if known.build and len(words) > 1:
        parser.error("--build takes no other option and no command")
    if not known.build and not all(stage.command for stage in stages):
        parser.error("a command is missing")
    if known.kernel == UML and (known.keep or known.extra or len(stages) > 1):
        parser.error("--kernel uml takes one command, without --keep and --with")
    if known.network and known.kernel != UML:
        parser.error("--network needs --kernel uml")
    if known.network and not re.fullmatch(NETWORK, known.network):
        parser.error(
            "--network: expected DEVICE=ADDRESS/PREFIX, such as tap1=10.0.0.2/24"
        )
    shared = known.keep, known.bare, known.extra, known.network
    return Options(known.kernel, known.build, *shared, stages)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests/lab/run", usage=USAGE, description=WHAT, epilog=MORE
    )
    add = parser.add_argument
    add("--kernel", choices=[*KERNELS, UML], default="6.1", help="default: 6.1")
    add(
        "--build",
        action="store_true",
        help="build what the 6.1 and the quick guest need, and end",
    )
    add("--keep", action="store_true", help="leave it running, print how to enter")
    add("--bare", action="store_true", help="a volume group, but no lunshare")
    add(
        "--network",
        metavar="DEVICE=ADDRESS/PREFIX",
        default="",
        help="a network card of the quick guest, at this tap device",
    )
    add(
        "--with",
        dest="extra",
        action="append",
        default=[],
        choices=list(FURTHER),
        help="an additional disk: Cinder 29.0.0 at /opt/cinder",
    )
    return parser


def _stages(words: Sequence[str]) -> list[Stage]:
    stages = [Stage("", [])]
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("--reboot", "--cut") and rest[:1] == ["--"]:
            rest.pop(0)
            stages.append(Stage(word.removeprefix("--"), []))
        else:
            stages[-1].command.append(word)
    return stages
