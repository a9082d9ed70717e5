# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One stock cinder-volume with lunshare's driver and 1,000 volumes, on fake storage."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.values import GIB, Volume
from tests.bench import process_costs
from tests.bench.figures import Figure, median_ms
from tests.bench.http import Client
from tests.bench.scale_stack import ScaleStack
from tests.fleet import api
from tests.fleet.stack import OTHER, THICK, THIN
from tests.stands.cinder_programs import python
from tests.stands.servers import ROOT
from tests.stands.waiting import until

VOLUMES = 1000
_CYCLES, _WINDOW = 25, 60.0
_BEGAN, _READY = "Starting volume driver LunshareDriver", "Driver initialization comp"


def figures(stack: ScaleStack, keep: Callable[[Figure], None]) -> None:
    """All figures of this part, each given to ``keep``."""
    client = stack.client()
    first = attached(stack, client)
    for figure in _measured(stack, client, "1 volume"):
        keep(figure)
    fill(stack, first, VOLUMES - 1)
    for name in ("start, every export is missing", "start, every export is there"):
        keep(Figure(f"{name}, {VOLUMES:,} volumes", restart(stack), "s"))
    for figure in _measured(stack, client, f"{VOLUMES:,} volumes"):
        keep(figure)
    clients = database_clients(stack)
    keep(Figure(f"connections to MariaDB, {VOLUMES:,} volumes", clients, ""))


def attached(stack: ScaleStack, client: Client) -> str:
    """Create a volume on the real cinder-volume, with one host; return its id."""
    volume_id = api.create(client, THIN)
    api.attach(client, volume_id, "host-0", "rw")
    return volume_id


def fill(stack: ScaleStack, first: str, count: int) -> list[str]:
    """Copy the rows of a volume and of its host, and create the disks; the ids."""
    words = ["-m", "tests.bench.cinder_rows", stack.database.url, first, str(count)]
    ids = subprocess.run(
        [str(python()), *words], check=True, text=True, stdout=subprocess.PIPE, cwd=ROOT
    ).stdout.split()
    options = {option.dest: option.default for option in FakeVolumes.OPTIONS}
    key = ("fill", THIN, tuple(sorted(options.items())))
    for volume_id in ids:
        stack.storage.call("volumes", key, "create", Volume(volume_id, GIB))
    return ids


def restart(stack: ScaleStack) -> float:
    """Start cinder-volume again; the seconds of ``init_host``, as its log says."""
    before = len(stack.log)
    stack.stop_volume(signal.SIGTERM)
    stack.start_volume()
    until(lambda: _READY in _of_worker(stack, before), "cinder-volume is ready")
    began, ready = (
        _moment(_of_worker(stack, before), text) for text in (_BEGAN, _READY)
    )
    return (ready - began) / timedelta(seconds=1)


def database_clients(stack: ScaleStack) -> float:
    """The connections to the database that end with cinder-volume, for a backend."""
    before = stack.status("Threads_connected")
    stack.stop_volume(signal.SIGTERM)
    ended = before - stack.status("Threads_connected")
    stack.start_volume()
    return ended / len((THIN, THICK, OTHER))


def _of_worker(stack: ScaleStack, before: int) -> str:
    """What the process of THIN has written since then."""
    number = f" {stack.worker()} "
    return "\n".join(line for line in stack.log[before:].splitlines() if number in line)


def _moment(log: str, text: str) -> datetime:
    line = next(line for line in log.splitlines() if text in line)
    return datetime.fromisoformat(line[:23])


def _measured(stack: ScaleStack, client: Client, where: str) -> Iterator[Figure]:
    worker = stack.worker()
    until(lambda: stack.is_up(THIN), "it is up")
    began, cpu = time.monotonic(), process_costs.cpu([worker])
    time.sleep(_WINDOW)
    minute = 60 * (process_costs.cpu([worker]) - cpu) / (time.monotonic() - began)
    yield Figure(f"at rest, CPU in a minute, {where}", minute * 1000, "ms")
    volume_id = api.create(client, THIN)
    client.fresh()
    times = [client.cycle(volume_id, "host-1") for _ in range(_CYCLES)]
    for number, name in enumerate(("attach", "complete", "detach")):
        value = median_ms(each[number] for each in times)
        yield Figure(f"{name} over HTTP, {where}", value, "ms")
    api.delete(client, volume_id)
    broker = process_costs.connections(worker, stack.broker.port)
    yield Figure(f"memory (VmRSS), {where}", process_costs.rss(worker), "MiB")
    yield Figure(f"memory (PSS), {where}", process_costs.pss([worker]), "MiB")
    yield Figure(f"descriptors, {where}", process_costs.descriptors(worker), "")
    yield Figure(f"connections to RabbitMQ, {where}", broker, "")
