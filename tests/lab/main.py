# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One run of the lab, in reading order."""

import shutil
import signal
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from tests.lab import (
    accel,
    cache,
    command_line,
    environment,
    host,
    image,
    node,
    payload,
    warm,
)
from tests.lab.command_line import UML, Options, Stage
from tests.lab.guest import Guest, Parts
from tests.lab.steps import LabError, say, step
from tests.lab.uml import build, processor
from tests.lab.uml.guest import UmlGuest

REPOSITORY = Path(__file__).resolve().parents[2]
LAB_FAILED = 125  # as `timeout`, `docker run` and `git bisect run` use it
INTERRUPTED = 130


def main(words: Sequence[str]) -> int:
    """Parse and run; report every error here."""
    signal.signal(signal.SIGTERM, _terminated)
    options = command_line.parse(words)
    try:
        host.need_programs()
        if options.build:
            build_quick()
            build_stock("6.1")
            return 0
        return _run_quickly(options) if options.kernel == UML else _run(options)
    except LabError as error:
        say(str(error))
        return LAB_FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


def build_stock(kernel: str) -> tuple[Path, list[str], Path]:
    """The system, QEMU's program and a booted node; what is missing is built."""
    python, system = environment.tools(REPOSITORY), image.system(kernel)
    packages = environment.lunshare(REPOSITORY, system, python)
    how = accel.choose(system)
    return system, how, warm.node(system, packages, how)


def _run(options: Options) -> int:
    system, how, state = build_stock(options.kernel)
    python = environment.tools(REPOSITORY)
    further = [environment.further(each, system, python) for each in options.extra]
    directory = Path(tempfile.mkdtemp(prefix="lunshare-lab-"))
    disks = [
        warm.overlay(base, directory / f"disk{number}.qcow2")
        for number, base in enumerate([*warm.disks(state), *further])
    ]
    parts = Parts(system, disks[:2], disks[2:], _shares(directory), how)
    guest = Guest(parts, directory, outlives_us=options.keep)
    keep = False
    try:
        _set_up(options, guest, state, python)
        code = _stages(guest, options)
        keep = options.keep
    finally:
        _leave(guest, directory, keep)
    return code


def build_quick() -> tuple[Path, list[Path]]:
    """The kernel and the disks of the quick guest; what is missing is built."""
    python, system = environment.tools(REPOSITORY), image.system("6.1")
    packages, kernel = environment.lunshare(REPOSITORY, system, python), build.kernel()
    return kernel, [build.system(system, kernel), build.packages(packages)]


def _run_quickly(options: Options) -> int:
    """The command in a guest of tests/lab/uml."""
    one = processor.choose(cache.directory())
    kernel, disks = build_quick()
    python = environment.tools(REPOSITORY)
    directory = Path(tempfile.mkdtemp(prefix="lunshare-lab-"))
    guest = UmlGuest(kernel, disks, directory, network=options.network, processor=one)
    try:
        with step("pack the tree"):
            _pack(options, directory, python)
        guest.prepare(options.stages[0].command, bare=options.bare)
        return guest.run()
    finally:
        guest.kill()
        shutil.copytree(directory / "build", REPOSITORY / "build", dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def _shares(directory: Path) -> dict[str, Path]:
    shares = {"lab": directory / "carried", "build": REPOSITORY / "build"}
    for path in shares.values():
        path.mkdir(exist_ok=True)
    return shares


def _set_up(options: Options, guest: Guest, state: Path, python: Path) -> None:
    with step("resume the guest, pack the tree"), ThreadPoolExecutor() as pool:
        packing = pool.submit(_pack, options, guest.parts.shares["lab"], python)
        # In this thread: QEMU ends when the thread that started it ends.
        guest.wake(state / "state")
        node.woken(guest, options.extra)
        packing.result()
    with step("unpack the tree" if options.bare else "install lunshare and start it"):
        node.provision(guest, bare=options.bare)


def _pack(options: Options, carried: Path, python: Path) -> None:
    payload.scripts(carried)
    payload.tree(REPOSITORY, carried)
    if not options.bare:
        payload.package(python, carried)


def _stages(guest: Guest, options: Options) -> int:
    for stage in options.stages:
        _before(stage, guest, options)
        code = node.run(guest, stage.command)
        if code:
            return code
    return 0


def _before(stage: Stage, guest: Guest, options: Options) -> None:
    if stage.before == "reboot":
        with step("reboot the guest"):
            guest.reboot()
            node.booted(guest, options.extra, bare=options.bare)
    if stage.before == "cut":
        with step("cut the guest's power and boot it again"):
            guest.cut()
            node.booted(guest, options.extra, bare=options.bare)


def _leave(guest: Guest, directory: Path, keep: bool) -> None:
    if keep:
        enter, end = guest.detach()
        say(f"the guest still runs; to enter it:\n  {enter}\nto end it:\n  {end}")
        return
    guest.leave()
    shutil.rmtree(directory, ignore_errors=True)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
