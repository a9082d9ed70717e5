# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Random frames, verbs and commands: nothing of the node is hit that is not served.

Short here; longer with `make fuzz EXAMPLES=20000`. Counts and the seed are printed, and
`--fuzz-seed` does the same again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from lunshare.drivers import errors
from lunshare.drivers.protocol import frames, messages
from lunshare.helper.commands import Commands
from lunshare.helper.main import verbs
from lunshare.helper.mounts import Mounts
from tests.unit.fuzzing import fuzz
from tests.unit.helper_process import HelperProcess
from tests.unit.test_filters import SERVED, commands, served

__all__ = ["commands", "fuzz", "served"]

ID, OTHER = (
    f"{'0' * 8}-0000-4000-8000-{'0' * 12}",
    f"{'1' * 8}-0000-4000-8000-{'0' * 12}",
)
NAME = f"volume-{ID}"
POINT = "0" * 32


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is not served: files that are named like volumes, outside every share."""
    place = tmp_path_factory.mktemp("canaries")
    for where in (place, place / POINT):
        where.mkdir(exist_ok=True)
        for identity in (ID, OTHER):
            (where / f"volume-{identity}").write_bytes(os.urandom(8192))
    return place


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory, canaries: Path
) -> Iterator[HelperProcess]:
    made = HelperProcess(
        tmp_path_factory.mktemp("helper"), "lvs lvrename lvremove mount"
    )
    # Root would give this machine's own network a firewall.
    alone = ["unshare", "--net"] if os.geteuid() == 0 else []
    made.start(
        f"volume_groups = lunshare\nnfs_mount_point_base = {canaries}/mnt", *alone
    )
    yield made
    made.stop()


def state(place: Path) -> str:
    """Names, bytes, modes of all files below."""
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        found = path.stat()
        digest.update(f"{path} {found.st_mode} {found.st_size}".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def is_well(process: HelperProcess) -> None:
    """It answers a correct request, and logged no fault of itself."""
    with process.open_connection() as connection:
        frames.send(connection, messages.request("lio.check", 5, {"prefix": "p:"}))
        assert "value" in frames.receive(connection)
    assert "Traceback" not in process.log_text(), process.log_text()[-3000:]


# frames

HEADER = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)).map(
    lambda length: struct.pack(">I", length)
)
NEAR = messages.request("lio.check", 1, {"prefix": "p:"})
FRAMES = st.lists(
    st.one_of(
        HEADER,
        st.binary(max_size=200),
        st.sampled_from(
            [b"[" * 5000, b'{"call":', b"\0" * 70_000, b"1e999", b'"\\ud800"']
        ),
        st.just(struct.pack(">I", 48) + json.dumps(NEAR).encode().ljust(48)),
    ),
    max_size=6,
)


def test_random_frames(fuzz, process: HelperProcess) -> None:
    def check(pieces: list[bytes]) -> None:
        with (
            process.open_connection() as connection,
            contextlib.suppress(OSError, frames.Closed),
        ):
            connection.settimeout(0.005)
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(1)
            while "error" in frames.receive(connection, 10**6):
                pass

    fuzz(check, FRAMES)
    is_well(process)


# verbs

WORDS = st.sampled_from(
    [
        *(
            ID,
            OTHER,
            NAME,
            "volume",
            "rw",
            "ro",
            "block",
            "file",
            "0600",
            "a",
            "..",
            "",
        ),
        *("iqn.1994-05.com.example:host1", "192.0.2.1", "::1", "NULL", "\0", "\n", "/"),
        *(f"/dev/lunshare/{NAME}", f"/dev/rootvg/{NAME}", "/dev/null", "/dev/zero"),
        *(f"/dev/mapper/lunshare-x--{NAME}", "/dev/mem", "/dev/tty", "/etc/shadow"),
        *("lvs", "lvrename", "rootvg", "lunshare", "x" * 5000, "\ud800", "é"),
        *(
            "{canaries}/" + each
            for each in (NAME, f"{POINT}/{NAME}", POINT, f"mnt/{POINT}")
        ),
    ]
)
SCALARS = st.one_of(
    *(WORDS, st.text(max_size=20), st.none(), st.booleans(), st.integers()),
    *(
        st.integers(-1, 2**63),
        st.floats(),
        st.sampled_from([0, 1, 3260, 2**64, -(2**63)]),
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=8,
)
KIND = st.sampled_from(["block", "file", "x"])
DISK = st.fixed_dictionaries({"path": WORDS, "size": SCALARS, "kind": KIND})
SIDE = st.fixed_dictionaries(
    {
        "volume_id": st.sampled_from([ID, OTHER]),
        "path": WORDS,
        "size": SCALARS,
        "kind": KIND,
    }
)
HOST = st.fixed_dictionaries(
    {
        "initiator": WORDS,
        "mode": WORDS,
        "attachment_id": WORDS,
        "auth": st.one_of(
            st.none(),
            st.fixed_dictionaries({"username": WORDS, "password": WORDS}),
            VALUES,
        ),
    }
)
PORTAL = st.fixed_dictionaries({"address": WORDS, "port": SCALARS})
KNOWN: dict[str, Any] = {
    "volume_id": st.one_of(st.sampled_from([ID, OTHER]), VALUES),
    "disk": st.one_of(st.none(), DISK, VALUES),
    "connectors": st.one_of(st.lists(HOST, max_size=3), VALUES),
    "portals": st.one_of(st.lists(PORTAL), VALUES),
    "only": st.one_of(st.none(), st.lists(WORDS), VALUES),
    "reservations": SCALARS,
    "source": st.one_of(SIDE, WORDS, VALUES),
    "target": st.one_of(SIDE, VALUES),
    "size": SCALARS,
    "length": SCALARS,
    "start": SCALARS,
    "backend": st.sampled_from(["lvm", "lvm }", ""]),
    "address": WORDS,
    "addresses": st.one_of(st.lists(WORDS, max_size=3), VALUES),
    "networks": st.one_of(st.lists(WORDS, max_size=3), VALUES),
    "wanted": st.one_of(st.booleans(), VALUES),
}
WANTS = {
    "disk.copy": ("source", "target"),
    "lvm.commit": ("device",),
    "lvm.pool": ("group", "pool"),
    "lvm.mapped": ("group", "volume"),
    "lvm.copy": ("source", "target", "length"),
    "lvm.zero": ("device", "start", "length"),
    "run": ("argv",),
    **dict.fromkeys(
        ("lio.apply", "lio.compare"),
        ("volume_id", "disk", "connectors", "portals", "only", "reservations"),
    ),
    "lio.remove": ("volume_id",),
    "lio.live": ("volume_id",),
    "lio.host": ("volume_id", "initiator"),
    "lio.registrations": ("volume_id",),
    "share.create": ("point", "name", "size", "preallocate", "mode"),
    "share.extend": ("point", "name", "size", "preallocate"),
    "share.manage": ("point", "name", "reference", "size", "mode"),
    "share.copy": (
        *("point", "name", "source", "size", "mode", "preallocate", "replace", "clone"),
    ),
    **dict.fromkeys(
        ("share.find", "share.unmanage", "share.delete"), ("point", "name")
    ),
    **dict.fromkeys(("share.check", "share.capacity", "share.list"), ("point",)),
    "firewall.check": (),
    "firewall.observe": ("backend",),
    "firewall.apply": ("backend", "portals", "addresses", "networks"),
    "firewall.admit": ("backend", "wanted", "unwanted"),
    "firewall.remove": ("backend",),
    "lio.check": ("prefix",),
    "lio.observe": (),
    "node.processes": (),
}
CODES = {kind.code for kind in vars(errors).values() if hasattr(kind, "code")}


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """A request that is nearly right, or anything."""
    verb = draw(st.sampled_from(sorted(WANTS)))
    given_ = {
        name: draw(
            KNOWN.get(name, st.one_of(WORDS, st.lists(WORDS, max_size=8), VALUES))
        )
        for name in WANTS[verb]
    }
    if draw(st.integers(0, 9)) == 0:
        given_ = draw(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
    return messages.request(verb, 1, given_)


def test_random_verbs(fuzz, process: HelperProcess, canaries: Path) -> None:
    before = state(canaries)

    def check(request: dict[str, Any]) -> None:
        text = json.dumps(request, allow_nan=True).replace("{canaries}", str(canaries))
        body = text.encode(errors="surrogatepass")
        with process.open_connection() as connection:
            connection.sendall(struct.pack(">I", len(body)) + body)
            try:
                while "progress" in (answer := frames.receive(connection)):
                    pass
            except (frames.Closed, ConnectionError):
                return  # it was not JSON: Infinity, half a surrogate
            assert answer.keys() in ({"value"}, {"error", "fields"})
            assert answer.get("error", "unsupported") in CODES
            assert "journal" not in str(answer), answer

    fuzz(check, asked())
    assert state(canaries) == before
    is_well(process)


def test_every_verb_is_fuzzed(commands: Commands) -> None:
    assert verbs(SERVED, commands, Mounts()).keys() == WANTS.keys()
