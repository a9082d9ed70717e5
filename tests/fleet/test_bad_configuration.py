# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong in cinder.conf or on the node: one sentence, a backend that is down."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.protocol import frames
from lunshare.drivers.protocol.messages import PROTOCOL
from tests.fleet.stack import OTHER, THICK, THIN, Stack
from tests.stands.waiting import until
from tests.unit.helper_process import HelperProcess

_DRIVER = "volume_driver = lunshare.cinder.LunshareDriver\n"

#: The lines of each section, and what the sentence says.
WRONG = {
    "mirrored": ("lvm_mirrors = 1", "lvm_mirrors is not an option of lunshare: remove"),
    "wiped": ("volume_clear = zero", "volume_clear is not an option of lunshare"),
    "helped": ("target_helper = lioadm", "target_helper is not an option of lunshare"),
    "auto": ("lvm_type = auto", "lvm_type"),
    "misspelt": ("volume_gruop = x", "volume_gruop: no such option"),
    "unknown": (
        "lunshare_storage = zfs",
        "driver 'zfs' of lunshare.drivers is unknown",
    ),
    "nohelper": (
        "lunshare_helper_socket = /nowhere/helper.sock",
        "the root helper does not answer (",
    ),
    "foreign": ("volume_group = foreign\n{helper}", "foreign"),
    "newer": ("{newer}", f"speaks protocol {PROTOCOL + 1}"),
}


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelperProcess]:
    """The real root helper, for another volume group."""
    made = HelperProcess(tmp_path_factory.mktemp("helper"), "vgs lvs")
    made.start("volume_groups = lunshare")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a helper of the next protocol."""
    path = tmp_path_factory.mktemp("newer") / "helper.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_refuse_all, args=(listener,), daemon=True).start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)


def _refuse_all(listener: socket.socket) -> None:
    """Answer as messages.other_protocol of that helper does."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            frames.receive(connection)
            fields = {"error": "helper-version", "fields": ["newer"]}
            frames.send(connection, {"protocol": PROTOCOL + 1, **fields})


def test_wrong_backends_are_down_and_others_work(
    stack: Stack, helper: HelperProcess, newer: Path
) -> None:
    values = {
        "helper": f"lunshare_helper_socket = {helper.path}",
        "newer": f"lunshare_helper_socket = {newer}",
    }
    sections = "".join(
        f"[{name}]\n{_DRIVER}volume_backend_name = {name}\n{lines.format(**values)}\n"
        for name, (lines, _) in WRONG.items()
    )
    stack.stop_volume(signal.SIGTERM)
    stack.configure(sections, *WRONG)
    stack.start_volume()
    hosts = {f"node@{name}" for name in WRONG}
    until(lambda: hosts <= set(stack.services()), "every service is listed")
    until(
        lambda: all(stack.services()[host] == "down" for host in hosts), "they are down"
    )
    until(lambda: stack.is_up(THIN, THICK, OTHER), "the others work")
    assert set(stack.pools()) == {f"node@{n}#{n}" for n in (THIN, THICK, OTHER)}
    for name, (_, sentence) in WRONG.items():
        lines = [
            line
            for line in stack.log.splitlines()
            if f"[{name}] backend state: up=False problem=" in line
        ]
        assert len(lines) == 1, (name, lines)
        assert sentence in lines[0], lines[0]
        print("  ", lines[0].partition("problem=")[2], flush=True)


def test_active_active_cluster_is_refused_with_the_reason(stack: Stack) -> None:
    """Two cinder-volume on one backend, as ``cluster`` wants: not with this driver."""
    stack.stop_volume(signal.SIGTERM)
    before = len(stack.log)
    stack.configure("[DEFAULT]\ncluster = fleet\n")
    stack.start_volume()
    refused = (
        "Active-Active configuration is not currently supported by driver"
        " lunshare.cinder.LunshareDriver."
    )
    until(lambda: stack.log[before:].count(refused) >= len((THIN, THICK)), "it says so")
    hosts = [f"node@{name}" for name in (THIN, THICK)]
    until(lambda: all(stack.services()[host] == "down" for host in hosts), "down")
    print("  ", refused, flush=True)
