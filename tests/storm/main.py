# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command: run one storm, and print its seed and its findings."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.storm.journal import Finding, Journal
from tests.storm.processes import ROOT, Failed
from tests.storm.storm import Options, Storm

_SHOWN = 2  # of each invariant


def main(argv: list[str]) -> int:
    """Run a storm; 1 when an invariant did not hold."""
    asked = _parser().parse_args(argv)
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    work = Path(tempfile.mkdtemp(prefix="lunshare-storm-", dir=_memory()))
    print(
        f"storm: seed {seed}, {asked.seconds:g} s, {asked.clients} operators, "
        f"{asked.tenants} tenants",
        flush=True,
    )
    tree = asked.tree.resolve()
    options = Options(
        seed,
        asked.seconds,
        asked.clients,
        tree,
        work,
        asked.calm,
        asked.go_on,
        asked.tenants,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no process is left behind
    began, storm = time.monotonic(), Storm(options)
    try:
        storm.run()
    except Failed as error:
        storm.journal.find("the daemon runs and answers", str(error))
    finally:
        storm.close()
    report(storm, time.monotonic() - began)
    if storm.journal.findings:
        lines = "\n".join(map(storm.journal.line, storm.journal.ops))
        (work / "journal").write_text(f"{lines}\n")
        (work / "storage.sock").unlink(missing_ok=True)
        kept = shutil.move(work, tempfile.mkdtemp(prefix="lunshare-storm-"))
        print(f"\nFAILED: seed {seed}; the journal and the logs are in {kept}")
        return 1
    shutil.rmtree(work)
    return 0


def _memory() -> str | None:
    """A directory where an fsync costs nothing, if there is one.

    A killed process loses nothing that it has written, and power is not cut here.
    """
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests/storm/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, help="of all chances; default: a new one")
    parser.add_argument("--clients", type=int, default=12, help="at once")
    parser.add_argument(
        "--tenants", type=int, default=6, help="clients with one project's rights"
    )
    parser.add_argument(
        "--calm", action="store_true", help="neither faults nor kills between epochs"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="after a finding too, to see more of them"
    )
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="whose daemon; default: this one"
    )
    return parser


def report(storm: Storm, seconds: float) -> None:
    """Print what was done and what was found, with the operations before it."""
    journal = storm.journal
    asked = [op for op in journal.ops if op.who != "storm"]
    answers = Counter(str(op.status or "no answer") for op in asked)
    codes = ", ".join(f"{count} x {code}" for code, count in sorted(answers.items()))
    print(
        f"{storm.epochs} epochs in {seconds:.0f} s: {len(asked)} operations ({codes}),"
        f" {storm.kills} kills, {storm.faults} faults; {storm.checked} checks of"
        f" invariants"
    )
    print(f"{storm.onlooker}; {storm.hostile}")
    times = Counter(finding.invariant for finding in journal.findings)
    for invariant, count in times.items():
        found = [each for each in journal.findings if each.invariant == invariant]
        for finding in found[:_SHOWN]:
            _show(journal, finding)
        if count > _SHOWN:
            print(f"  ... and {count - _SHOWN} times more")


def _show(journal: Journal, finding: Finding) -> None:
    print(f"\nBROKEN: {finding.invariant}\n  {finding.sentence}")
    if lines := journal.last(finding.objects, finding.at):
        print("  the last operations on it:")
        print("\n".join(f"    {line}" for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
