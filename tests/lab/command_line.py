# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What `run` was asked to do: options, then one command per life of the guest."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import image

EPILOG = """
CMD runs as root in /srv/lunshare, a copy of the working tree, with /opt/lunshare/bin first in PATH. What it writes to
/build appears in the repository's build/. The first exit code that is not 0 ends the run and is returned; 125 means
that the lab itself failed.
"""
USAGE = "%(prog)s [options] -- CMD… [--reboot -- CMD…] [--cut -- CMD…]"


@dataclass(frozen=True)
class Stage:
    """A command, and what happens to the guest before it: nothing, "reboot" or "cut"."""
    before: str
    command: list[str]


@dataclass(frozen=True)
class Options:
    kernel: str
    keep: bool
    bare: bool
    extra: Sequence[str]
    stages: list[Stage]


def parse(words: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="tests/lab/run", usage=USAGE, description="Run CMD on a storage node with lunshare.",
                                     epilog=EPILOG)
    parser.add_argument("--kernel", choices=list(image.KERNELS), default="6.1", help="Debian 12's kernel, or its newer one")
    parser.add_argument("--keep", action="store_true", help="leave the guest running afterwards and say how to enter it")
    parser.add_argument("--bare", action="store_true", help="only the machine and its volume group, without lunshare")
    parser.add_argument("--with", dest="extra", action="append", default=[], choices=["cinder"], metavar="WHAT",
                        help="mount a further disk: cinder, at /opt/cinder")
    cut = words.index("--") if "--" in words else len(words)
    known = parser.parse_args(words[:cut])
    stages = split(words[cut + 1:])
    if not all(stage.command for stage in stages):
        parser.error("a command is missing")
    return Options(known.kernel, known.keep, known.bare, known.extra, stages)


def split(words: list[str]) -> list[Stage]:
    """CMD, and after each `--reboot --` or `--cut --` another one."""
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
