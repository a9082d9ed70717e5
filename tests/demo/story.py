# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The main job, step by step: ``python -m tests.demo.story`` on a storage node.

One volume, three hosts; one may write, two may only read. A line is printed only
after its check. The first check that fails ends the demo with a sentence and exit
code 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.demo import api, killed, table
from tests.demo.api import Broken
from tests.demo.hosts import REFUSALS, SHARED, Host, Pulse, status
from tests.system.lio_hosts import DATA_PROTECT, LoginRefused, Refused

_WRITE_PROTECTED = 0x2700  # SPC-4: additional sense code and its qualifier


class Story:
    """What the steps share."""

    def __init__(self) -> None:
        self.alpha, self.beta, self.gamma = Host("alpha"), Host("beta"), Host("gamma")
        self.hosts = (self.alpha, self.beta, self.gamma)
        self.type = self.volume = ""
        self.shared = os.urandom(SHARED)

    def run(self) -> None:
        """Run all steps."""
        self.daemon()
        self.create()
        self.attach()
        self.log_in()
        self.share()
        self.refuse_write()
        self.refuse_other_hosts()
        self.detach()
        self.kill()
        self.hand_over()
        self.show()

    def daemon(self) -> None:
        """It runs, and its backends have free space."""
        api.start()
        pools = api.call("GET", "/v3/scheduler-stats/get_pools?detail=true")["pools"]
        say("lunshared is ready", *(pool_line(pool["capabilities"]) for pool in pools))

    def create(self) -> None:
        """A volume of a type whose volumes may be shared."""
        name = f"shareable-{os.getpid()}"
        specs = {"multiattach": "<is> True"}
        asked: dict[str, Any] = {"name": name, "extra_specs": specs}
        created = api.call("POST", "/v3/types", {"volume_type": asked})
        self.type = created["volume_type"]["id"]
        asked = {"name": "demo", "size": 1, "volume_type": name}
        created = api.call("POST", "/v3/volumes", {"volume": asked})
        self.volume = created["volume"]["id"]
        api.until("the volume", lambda: self._volume()["status"] != "creating")
        created = self._volume()["status"]
        check(created == "available", f"volume {self.volume} is {created}")
        say(f"POST /v3/volumes: 1 GiB, shareable, id {self.volume}")

    def attach(self) -> None:
        """Three hosts, each with its own mode and secret."""
        for host, mode in zip(self.hosts, ("rw", "ro", "ro"), strict=True):
            host.mode = mode
            self._attach(host)
        check(self._volume()["status"] == "in-use", "the volume is not in-use")
        say("POST /v3/attachments, three times: alpha rw, beta ro, gamma ro")

    def log_in(self) -> None:
        """Real initiators: libiscsi, CHAP, one session each."""
        for host in self.hosts:
            protected = host.live().write_protected
            check(protected == (host.mode == "ro"), f"{host.name} has another mode")
        say(
            "all three have logged in to its LUN 0, each with its own CHAP secret;",
            "MODE SENSE reports write-protected to beta and gamma, and not to alpha",
        )

    def share(self) -> None:
        """The others read what alpha writes."""
        self.alpha.write(self.shared)
        say(f"alpha writes {SHARED // 1024} KiB:   sha256 {sha(self.shared)}")
        for host in (self.beta, self.gamma):
            read = host.read()
            check(read == self.shared, f"{host.name} read other bytes")
            print(f"    {host.name + ' reads:':<25}sha256 {sha(read)}")

    def refuse_write(self) -> None:
        """The target refuses, whatever the host's own kernel allows."""
        sense = refused_write(self.beta)
        check(self.alpha.read() == self.shared, "beta's refused write left a trace")
        say(
            f"beta sends a WRITE nevertheless: refused by the target, sense {sense}",
            "(DATA PROTECT, WRITE PROTECTED); the bytes are still those of alpha",
        )
        words = self.beta.qemu()
        check("write protected" in words, f"qemu-io printed for beta: {words}")
        print(f"    and qemu-io as beta prints: {words.splitlines()[-1]}")

    def refuse_other_hosts(self) -> None:
        """No attachment, no login; another host's secret does not help."""
        delta = Host("delta")
        why = self._refused(delta, self.beta.info)
        say(f"delta has no attachment, and tries beta's secret: login refused, {why}")

    def detach(self) -> None:
        """One host is detached; the others are not disturbed."""
        with self._traffic() as traffic:
            start = time.monotonic()
            api.call("DELETE", f"/v3/attachments/{self.gamma.attachment}")
            took = time.monotonic() - start
        say(
            f"gamma is detached, in {took * 1000:.0f} ms, while alpha writes and beta"
            " reads without a pause:",
            f"not one error; {traffic}",
        )
        check(not self.gamma.live().alive, "gamma's session still exists")
        why = self._refused(self.gamma, self.gamma.info)
        print(f"    gamma's session has ended; it tries to log in: refused, {why}")
        self.gamma.leave()

    def kill(self) -> None:
        """Both programs of the node die in the middle of an attach."""
        with self._traffic() as traffic:
            seconds = killed.in_the_middle(self._attach_gamma, self.volume)
        found = self._kernel(self.gamma)
        check(
            found in table.CLOSED, f"the kernel has {found} for gamma, nobody was told"
        )
        rows = api.call("GET", f"/v3/attachments?volume_id={self.volume}")
        count = len(rows["attachments"])
        check(count == 2, f"after the kill the volume has {count} attachments")
        say(
            "kill -9 of lunshared and of its root helper in the middle of an attach of"
            " gamma,",
            "while alpha writes and beta reads without a pause:",
            f"not one error; {traffic}",
            f"both are back after {seconds:.1f} s; the attach without an answer is"
            f" undone: {found}",
        )
        self._attach_gamma()
        check(self.gamma.read() == self.shared, "gamma read other bytes")
        print("    gamma's client repeats it: attached ro, logged in, reads the bytes")

    def hand_over(self) -> None:
        """The right to write goes to beta; the answer is the proof."""
        pulse = Pulse(self.alpha, writes=True)
        api.until("alpha's writes", pulse.past(20))
        asked = {"from": self.alpha.attachment, "to": self.beta.attachment}
        body = {"lunshare:handover": asked}
        proof = api.call("POST", f"/v3/volumes/{self.volume}/action", body)
        pulse.stop()
        steps = proof["handover"]
        check(steps["status"] == "done", f"the handover is {steps['status']}")
        fenced, promoted = (
            later(steps["started_at"], steps[f"{step}_at"])
            for step in ("fenced", "promoted")
        )
        say(
            "lunshare:handover from alpha, which writes without a pause, to beta:",
            f"after {fenced} ms the writes of alpha have landed, and no other one can;",
            f"after {promoted} ms beta may write; fencing generation"
            f" {proof['fencing_generation']}",
        )
        for host in (self.alpha, self.beta):
            host.leave()
        sense = refused_write(self.alpha)
        check(pulse.landed(self.gamma), "an acknowledged write of alpha is lost")
        self.shared = os.urandom(SHARED)
        self.beta.write(self.shared)
        check(self.alpha.read() == self.shared, "alpha read other bytes than beta's")
        print(
            "    alpha's last acknowledged write is there; its next one: refused,"
            f" {sense}\n    beta writes, and alpha reads {sha(self.shared)}"
        )

    def show(self) -> None:
        """Show the volume and its hosts."""
        shown = self._volume()
        head = ["volume", "type", "size", "status"]
        size = f"{shown['size']} GiB"
        line = [shown["name"], shown["volume_type"], size, shown["status"]]
        print("\n" + table.rows(head, [line]) + "\n")
        head = ["host", "mode", "attachment", "in the kernel"]
        print(table.rows(head, [self._line(host) for host in self.hosts]) + "\n")

    def clean(self) -> None:
        """Delete everything, also after a failed step."""
        for host in self.hosts:
            host.leave()
            if host.attachment and not api.gone(f"/v3/attachments/{host.attachment}"):
                api.call("DELETE", f"/v3/attachments/{host.attachment}")
        if self.volume:
            where = f"/v3/volumes/{self.volume}"
            api.call("DELETE", where)
            api.until("the volume to be deleted", lambda: api.gone(where))
        if self.type:
            api.call("DELETE", f"/v3/types/{self.type}")

    def _attach_gamma(self) -> None:
        self._attach(self.gamma)

    def _attach(self, host: Host) -> None:
        asked = {"volume_uuid": self.volume, "mode": host.mode}
        body = {"attachment": {**asked, "connector": host.connector}}
        created = api.call("POST", "/v3/attachments", body)["attachment"]
        host.attachment, host.info = created["id"], created["connection_info"]
        complete = f"/v3/attachments/{host.attachment}/action"
        api.call("POST", complete, {"os-complete": None})

    @contextlib.contextmanager
    def _traffic(self) -> Iterator[Traffic]:
        """alpha writes and beta reads during the block, without an error."""
        pulses = Pulse(self.alpha, writes=True), Pulse(self.beta, writes=False)
        try:
            traffic = Traffic(measure(pulses))
            yield traffic
            traffic.during = measure(pulses)
        finally:
            for pulse in pulses:
                pulse.stop()

    def _volume(self) -> dict[str, Any]:
        found: dict[str, Any] = api.call("GET", f"/v3/volumes/{self.volume}")["volume"]
        return found

    def _line(self, host: Host) -> list[str]:
        found = self._kernel(host)
        where = f"/v3/attachments/{host.attachment}"
        if api.gone(where):
            check(
                found in table.CLOSED, f"the kernel still has {found} for {host.name}"
            )
            return [host.name, host.mode, "deleted", found]
        shown = api.call("GET", where)["attachment"]
        bit = "0" if shown["attach_mode"] == "rw" else "1"
        wanted = f"write_protect={bit} "
        check(found.startswith(wanted), f"the kernel has {found} for {host.name}")
        return [host.name, shown["attach_mode"], shown["status"], found]

    def _kernel(self, host: Host) -> str:
        return table.kernel(host.info["target_iqn"], host.initiator)

    def _refused(self, host: Host, info: dict[str, Any]) -> str:
        try:
            host.log_in(info).logout()
        except LoginRefused as refused:
            why = status(refused)
            check(why in REFUSALS, f"{host.name}'s login failed: {refused}")
            return f"status {why:#06x}"
        raise Broken(f"{host.name} has no attachment, and could log in")


@dataclass
class Traffic:
    """I/O of several hosts: its number and the slowest in ms, before and during."""

    before: tuple[int, float]
    during: tuple[int, float] = (0, 0.0)

    def __str__(self) -> str:
        (before, usual), (during, slowest) = self.before, self.during
        return (
            f"slowest of {before} I/Os before {usual:.0f} ms, of {during} meanwhile"
            f" {slowest:.0f} ms"
        )


def refused_write(host: Host) -> str:
    """Send a write that the target has to refuse; returns the sense."""
    try:
        host.live().write(0, bytes(512))
    except Refused as refused:
        key, code = refused.key, refused.ascq
    else:
        raise Broken(f"{host.name} is attached read-only, and its write was accepted")
    sense = f"{key:02x}h/{code >> 8:02x}h/{code & 255:02x}h"
    expected = (key, code) == (DATA_PROTECT, _WRITE_PROTECTED)
    check(expected, f"{host.name}'s write got sense {sense}, not 07h/27h/00h")
    return sense


def later(start: str, end: str) -> int:
    """Milliseconds between two times of the API."""
    between = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return round(between / timedelta(milliseconds=1))


def pool_line(able: dict[str, Any]) -> str:
    """One backend's pool."""
    kind = "thin" if able["thin_provisioning_support"] else "thick"
    free, total = able["free_capacity_gb"], able["total_capacity_gb"]
    name = able["volume_backend_name"]
    return f"backend {name}: {kind}, {free:g} of {total:g} GiB free"


def measure(pulses: tuple[Pulse, Pulse]) -> tuple[int, float]:
    """Wait for more I/O of both; returns their number and the slowest, in ms."""
    for pulse in pulses:
        api.until("steady I/O", pulse.past(20))
        check(pulse.error is None, f"{pulse.host.name} had an error: {pulse.error}")
    done = [pulse.mark() for pulse in pulses]
    return sum(count for count, _ in done), max(longest for _, longest in done) * 1000


def sha(data: bytes) -> str:
    """A short hash, to compare by eye."""
    return hashlib.sha256(data).hexdigest()[:32]


def check(passed: bool, otherwise: str) -> None:
    """End the demo with this sentence if the check failed."""
    if not passed:
        raise Broken(otherwise)


def say(line: str, *more: str) -> None:
    """Print one step."""
    print(f"  * {line}", *(f"    {each}" for each in more), sep="\n")


def main() -> int:
    """Run the steps, then clean up; returns the exit code."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    story = Story()
    print("\nOne volume, three hosts: alpha may write, beta and gamma may only read.\n")
    code = 1
    try:
        story.run()
        code = 0
    except (Broken, Refused, LoginRefused, api.Refused, OSError) as error:
        print(f"demo: failed: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
    try:
        story.clean()
        print("  * all of it is deleted again\n")
    except (Broken, api.Refused, OSError) as error:
        print(f"demo: could not clean up: {error}", file=sys.stderr)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
