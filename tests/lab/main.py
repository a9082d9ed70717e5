# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The life of one lab run, in reading order: images, guest, lunshare in it, the commands, and away with it."""

import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import cache
import command_line
import host
import image
import payload
from guest import Guest, Parts, interactive
from steps import LabError, say, step

REPOSITORY = Path(__file__).resolve().parents[2]
TCG = ["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max"]


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, _terminated)
    options = command_line.parse(words)
    try:
        host.need_programs()
        return _run(options)
    except LabError as error:
        say(str(error))
        return 125
    except KeyboardInterrupt:
        say("interrupted; the guest is gone")
        return 130


def _run(options: command_line.Options) -> int:
    system = image.system(options.kernel)
    cache.hold(system)
    directory = Path(tempfile.mkdtemp(prefix="lunshare-lab-"))
    build = REPOSITORY / "build"
    build.mkdir(exist_ok=True)
    carried = directory / "carried"
    carried.mkdir()
    guest = Guest(Parts(system, [], {"lab": carried, "build": build}, TCG), directory, options.keep)
    kept = False
    try:
        with step(f"boot the guest with kernel {(system / 'version').read_text().strip()}"):
            payload.gather(REPOSITORY, carried)
            guest.boot()
        with step("make the volume group"):
            guest.output("mkdir -p /run/lab && mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro lab /run/lab && "
                         "sh /run/lab/provision")
        code = _stages(guest, options)
        kept = options.keep
        return code
    finally:
        if kept:
            say(f"the guest goes on\n{guest.how_to_reach()}")
        else:
            guest.kill()
            shutil.rmtree(directory, ignore_errors=True)


def _stages(guest: Guest, options: command_line.Options) -> int:
    code = 0
    for stage in options.stages:
        if stage.before == "reboot":
            with step("reboot the guest"):
                guest.reboot()
        elif stage.before == "cut":
            with step("cut the guest's power and boot it again"):
                guest.cut()
        guest.output("mountpoint -q /build || mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 build /build")
        path = "/opt/lunshare/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        code = guest.call(f"cd /srv/lunshare && PATH={path} exec {shlex.join(stage.command)}", tty=interactive())
        if code:
            break
    return code


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
