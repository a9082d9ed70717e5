# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts can log in: names, secrets, discovery; and iscsi-test-cu's results."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.values import Auth
from tests.system.api import Api
from tests.system.hosts import Host, Info, own
from tests.system.kernel import PREFIX, Foreign, Live
from tests.system.units import Journal, run
from tests.system.volumes import BorrowVolume, MakeHost

pytestmark = pytest.mark.system


def test_host_without_an_attachment_is_refused(
    api: Api, volume: str, host: MakeHost
) -> None:
    info = api.attach(volume, host("one"))["connection_info"]
    outsider = host("outsider")
    assert outsider.refused(info)
    assert outsider.refused({**info, "auth_method": None})
    api.reserve(volume)
    assert outsider.refused(info)


def test_host_logs_in_with_its_own_secret_only(
    api: Api, volume: str, host: MakeHost
) -> None:
    one, two = host("one"), host("two")
    info = api.attach(volume, one)["connection_info"]
    theirs = api.attach(volume, two)["connection_info"]
    assert info["auth_method"] == "CHAP"
    mine, other = own(info), own(theirs)
    assert mine
    assert other
    assert mine.password != other.password
    assert one.refused(info, other)
    assert one.refused(info, Auth(mine.username, other.password))
    assert one.refused(info, Auth(mine.username, mine.password[:-1] + "#"))
    assert one.refused({**info, "auth_method": None})
    assert not one.refused(info)


def test_secret_is_in_connection_info_and_in_no_list(
    api: Api, volume: str, host: MakeHost
) -> None:
    created = api.attach(volume, host("one"))
    secret = created["connection_info"]["auth_password"]
    shown = api.must("GET", f"/v3/attachments/{created['id']}")
    assert shown["attachment"]["connection_info"]["auth_password"] == secret
    for path in ("attachments/detail", "attachments", "volumes/detail"):
        assert secret not in str(api.must("GET", f"/v3/{path}"))


def test_secrets_are_in_no_log_and_no_command_line(
    api: Api, borrow: BorrowVolume, host: MakeHost, journal: Journal
) -> None:
    secrets = set()
    with _command_lines() as seen:
        for number in range(4):
            volume = borrow()
            created = api.attach(volume, host(f"host-{number}"))
            secrets.add(created["connection_info"]["auth_password"])
            assert api.connect(created["id"], host(f"other-{number}"))[0] == 200
            for each in api.attachments(volume):
                shown = api.must("GET", f"/v3/attachments/{each['id']}")
                info = shown["attachment"]["connection_info"]
                secrets.add(info["auth_password"])
            assert api.detach(created["id"])[0] == 200
    assert len(secrets) == 8
    assert any("lunshare-helper" in line for line in seen)
    text = journal.text()
    assert "attachment connected" in text
    everything = text + "\n".join(seen) + run("journalctl", "--boot", "--output=cat")
    assert not [secret for secret in secrets if secret in everything]


def test_discovery_shows_a_host_only_its_own_targets(
    api: Api, borrow: BorrowVolume, host: MakeHost
) -> None:
    both, mine, theirs = borrow(), borrow(), borrow()
    one, two = host("one"), host("two")
    for volume, each in ((both, one), (both, two), (mine, one), (theirs, two)):
        info = api.attach(volume, each)["connection_info"]
    portal = info["target_portal"]
    assert _discovered(one, portal) == {both, mine}
    assert _discovered(two, portal) == {both, theirs}
    assert _discovered(host("outsider"), portal) == set()


def test_a_secret_for_discovery_hides_a_hosts_targets_from_who_knows_its_name(
    api: Api, volume: str, host: MakeHost
) -> None:
    """As operations.md says; the logins of hosts need no discovery."""
    one = host("one")
    info = api.attach(volume, one)["connection_info"]
    portal = info["target_portal"]
    assert _discovered(one, portal) == {volume}
    with _secret_for_discovery(Auth("discovery", "secret-of-this-node")) as auth:
        assert not one.refused(info)
        with pytest.raises(subprocess.CalledProcessError):
            _discovered(one, portal)
        who = f"{auth.username}%{auth.password}@"
        assert _discovered(one, who + portal) == {volume}
    assert _discovered(one, portal) == {volume}


def test_foreign_targets_do_not_change(
    api: Api, volume: str, host: MakeHost, foreign: Foreign
) -> None:
    one = host("one")
    created = api.attach(volume, one)
    assert not one.refused(created["connection_info"])
    assert one.refused(foreign.info)
    assert api.detach(created["id"])[0] == 200
    assert Live(volume).gone


# libiscsi's own test suite, as an independent check

# Suite to its known failures, by iscsi-test-cu's names. BlockLimits expects at most
# 2**20 blocks in one UNMAP; on 6.1 a thin LV accepts 8388607, and LIO reports that.
SUITES: dict[str, set[str]] = {
    "SCSI.Inquiry": {"BlockLimits"},
    "SCSI.Mandatory": set(),
    "SCSI.Read10": set(),
    "SCSI.Read16": set(),
    "SCSI.Write10": set(),
    "SCSI.Write16": set(),
}


def test_iscsi_test_cu_finds_a_read_only_attachment_read_only(
    api: Api, volume: str, host: MakeHost
) -> None:
    one = host("one")
    info = api.attach(volume, one, "ro")["connection_info"]
    asserts, failed = _run_iscsi_test_cu(one, info, "SCSI.ReadOnly")
    assert asserts >= 14
    # WRITE SAME is refused with another sense: see test_lio_readers.py.
    assert failed == {"ReadOnlySBC"}


@pytest.mark.parametrize("suite", SUITES)
def test_iscsi_test_cu_finds_a_writable_attachment_correct(
    api: Api, volume: str, host: MakeHost, suite: str
) -> None:
    one = host("one")
    info = api.attach(volume, one, "rw")["connection_info"]
    asserts, failed = _run_iscsi_test_cu(one, info, suite)
    assert asserts > 0
    assert failed == (SUITES[suite] if Live(volume).unmaps > 2**20 else set())


def _run_iscsi_test_cu(host: Host, info: Info, suite: str) -> tuple[int, set[str]]:
    """Run a suite as this host; returns the number of its checks and the failed tests.

    -d allows writes, -n runs without questions.
    """
    auth = own(info)
    assert auth
    url = f"iscsi://{auth.username}%{auth.password}@{info['target_portal']}"
    url += f"/{info['target_iqn']}/{info['target_lun']}"
    done = subprocess.run(
        ["iscsi-test-cu", "-n", "-d", "-i", host.initiator, "-t", suite, url],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    failed = set(re.findall(r"Suite \w+, Test (\w+) had failures", done.stdout))
    counts = {
        kind: [int(number) for number in numbers.split()]
        for kind, numbers in re.findall(r"(tests|asserts)\s+([\d ]+)", done.stdout)
    }
    assert counts, done.stdout + done.stderr
    _total, ran, passed, not_passed, _inactive = counts["tests"]
    assert (done.returncode == 0) == (not failed), done.stdout
    assert (ran - passed, not_passed) == (len(failed), len(failed))
    return counts["asserts"][1], failed


def _discovered(host: Host, portal: str) -> set[str]:
    """The volumes of this node whose targets SendTargets returns to the host.

    It returns all targets in the kernel, with any portal and of any owner: also one
    that a driver's test opens to every host.
    """
    done = subprocess.run(
        ["iscsi-ls", "-i", host.initiator, f"iscsi://{portal}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(re.findall(rf"Target:{re.escape(PREFIX)}(\S+)", done.stdout))


@contextlib.contextmanager
def _secret_for_discovery(auth: Auth) -> Iterator[Auth]:
    """The kernel demands it of every discovery at any portal of the node."""
    settings = Path("/sys/kernel/config/target/iscsi/discovery_auth")
    for name, value in (("userid", auth.username), ("password", auth.password)):
        (settings / name).write_text(value)
    (settings / "enforce_discovery_auth").write_text("1")
    yield auth
    (settings / "enforce_discovery_auth").write_text("0")
    for name in ("userid", "password"):
        (settings / name).write_text("NULL")


@contextlib.contextmanager
def _command_lines() -> Iterator[set[str]]:
    """Every command line in /proc while the block runs, by polling."""
    seen: set[str] = set()
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(path.read_bytes().replace(b"\0", b" ").decode())

    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()
