# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""share, attach, detach, mode, consumer-config and why, with a node that listens."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lunshare.agent.cli import main as cli
from lunshare.agent.cli import share
from lunshare.agent.model.records import NewAttachment, Page
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.values import Auth
from tests.stands.node import CTX, Node, endpoint, initiator, node_fixture
from tests.stands.servers import LOOPBACK, free_port
from tests.stands.waiting import until

Output = tuple[int, str, str]
Run = Callable[..., Output]
Fields = dict[str, Any]

PORT = free_port()
__all__ = ["endpoint"]

node = node_fixture(section=f"target_port = {PORT}", forget_storage=True)


@pytest.fixture
def run(endpoint: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Output:
        capsys.readouterr()
        code = cli.main([*words, "--endpoint", endpoint])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def pair(name: str) -> str:
    return f"{name}={initiator(name)}@192.0.2.7"


def shared(run: Run, *words: str) -> Fields:
    code, out, err = run("share", "1", *words, "--json")
    assert (code, err) == (0, "")
    answer: Fields = json.loads(out)
    return answer


def test_share_makes_a_type_a_volume_and_every_attachment(run: Run, node: Node) -> None:
    code, out, err = run(
        "share", "1", "--name", "s", "--rw", pair("alpha"), "--ro", pair("beta")
    )
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == [*share.HEAD]
    assert [line.split()[1:5] for line in lines[:2]] == [
        ["alpha", initiator("alpha"), "rw", "attached"],
        ["beta", initiator("beta"), "ro", "attached"],
    ]
    volume = lines[0].split()[0]
    assert node.live(volume) == {initiator("alpha"): "rw", initiator("beta"): "ro"}
    assert f"# InitiatorName={initiator('beta')}" in out
    assert out.count("--login") == 2
    # The type is used again.
    again = shared(run, "--ro", pair("alpha"))
    names = {r["attach_mode"] for r in again["attachments"]}
    assert names == {"ro"}


def ids(node: Node) -> list[str]:
    return [row.id for row in node.services.volumes.list(CTX, Page(None, 10))]


def test_share_leaves_nothing_if_a_host_is_refused(run: Run, node: Node) -> None:
    before = shared(run, "--rw", pair("alpha"))["volume"]
    with node.target().failures.fail("apply.opened", TargetFailed("v", "no")):
        code, out, err = run("share", "1", "--rw", pair("alpha"), "--ro", pair("beta"))
    assert (code, out) == (1, "")
    assert err.startswith("lunshare: ")
    assert "not undone" not in err
    until(lambda: ids(node) == [before], "the volume is deleted")


def test_share_says_what_it_could_not_take_back(run: Run, node: Node) -> None:
    target = node.target().failures
    with (
        target.fail("remove.before", TargetFailed("v", "busy")),
        target.fail("apply.created", TargetFailed("v", "because of the test")),
    ):
        code, _, err = run("share", "1", "--rw", pair("alpha"))
    assert code == 1
    assert "not undone: volume " in err
    assert "because of the test" in err.splitlines()[-1]


@pytest.mark.parametrize("text", ["alpha", "alpha=", "=iqn.a", "a=b@c@d", "a=b=c"])
def test_a_host_without_an_initiator_is_a_wrong_command_line(
    run: Run, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run("attach", "v", text)
    assert end.value.code == 2
    assert "is not HOST=INITIATOR" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "ten", "9" * 19])
def test_a_size_is_a_whole_number(
    run: Run, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run("share", size)
    assert end.value.code == 2
    assert "whole number of 1 or more" in capsys.readouterr().err


def test_another_host_is_attached_and_detached(run: Run, node: Node) -> None:
    volume = shared(run, "--rw", pair("alpha"))["volume"]
    code, out, err = run("attach", volume, pair("gamma"), "--mode", "ro")
    assert (code, err, initiator("gamma") in out) == (0, "", True)
    assert node.live(volume)[initiator("gamma")] == "ro"
    code, out, _ = run("detach", volume, "gamma")
    assert (code, "has no access" in out) == (0, True)
    assert node.live(volume) == {initiator("alpha"): "rw"}
    assert run("detach", volume, "gamma")[0] == 1


def test_a_lease_is_given_renewed_and_shown(run: Run, node: Node) -> None:
    volume = shared(run, "--ro", pair("alpha"))["volume"]
    code, _, err = run("renew", volume, "alpha")
    assert (code, "has no lease" in err) == (1, True)
    code, out, err = run("lease", volume, "alpha", "--ttl", "600")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[1:5] == ["rw", "600", "-", "running"]
    assert node.live(volume) == {initiator("alpha"): "rw"}
    assert run("renew", volume, "alpha")[0] == 0
    (head, line) = run("hosts", volume)[1].splitlines()
    assert line.split()[head.split().index("LEASE")] in ("599s", "600s")
    code, _, err = run("lease", volume, "alpha", "--ttl", "60", "--next")
    assert (code, "nobody is next" in err) == (1, True)


def test_many_hosts_are_attached_and_detached(
    run: Run, node: Node, tmp_path: Path
) -> None:
    volume = shared(run)["volume"]
    file = tmp_path / "hosts"
    lines = [f"{pair(f'h{number}')} ro" for number in range(600)]
    file.write_text("\n".join(["# the hosts", "", *lines, f"{pair('x')}  # any"]))
    words = ["--hosts-file", str(file), "--rw", pair("w"), "--json"]
    code, out, err = run("attach", volume, pair("alpha"), "--mode", "ro", *words)
    assert (code, err) == (0, "")
    made = json.loads(out)["attachments"]
    assert (len(made), len({row["id"] for row in made})) == (603, 603)
    assert {row["connector"]["host"]: row["attach_mode"] for row in made} == {
        **{f"h{number}": "ro" for number in range(600)},
        "alpha": "ro",
        "w": "rw",
        "x": "rw",
    }
    assert len(node.live(volume)) == 603
    assert run("detach", volume, "x", initiator("w"))[0] == 0
    assert len(node.live(volume)) == 601
    assert run("detach", volume, "--all")[0] == 0
    assert node.live(volume) == {}
    assert "no host is named" in run("detach", volume, "--all")[2]
    assert "no host is named" in run("attach", volume)[2]


def test_many_hosts_are_attached_together_or_not(run: Run, node: Node) -> None:
    """Also where they are more than one request has."""
    volume = shared(run, "--rw", pair("stays"))["volume"]
    hosts = [pair(f"h{number}") for number in range(520)]
    code, _, err = run("attach", volume, *hosts, "last=none")
    assert (code, "hosts.20: connector.initiator" in err) == (1, True)
    assert set(node.live(volume)) == {initiator("stays")}


@pytest.mark.parametrize("line", ["alpha", "a=b c", "a=b rw more"])
def test_a_wrong_line_of_a_file_is_named(
    run: Run, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"{pair('alpha')}\n{line}\n")
    for name, said in ((str(file), "line 2 of "), (str(tmp_path), "cannot be read")):
        with pytest.raises(SystemExit) as end:
            run("attach", "v", "--hosts-file", name)
        assert (end.value.code, said in capsys.readouterr().err) == (2, True)


def test_a_mode_is_changed_and_the_host_told_what_to_do(run: Run, node: Node) -> None:
    volume = shared(run, "--rw", pair("alpha"))["volume"]
    hangs = DeadlineExceeded("a write in progress", 1.0)
    with node.target().failures.fail("apply.closed", hangs):
        code, out, _ = run("mode", volume, "alpha", "ro")
    assert (code, "fence pending" in out) == (7, True)
    code, out, err = run("mode", volume, "alpha", "ro")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[1:3] == ["ro", "fenced"]
    assert "The host must have unmounted" in out
    assert run("mode", volume, "alpha", "rw")[0] == 0
    assert node.live(volume) == {initiator("alpha"): "rw"}


def test_immediate_does_not_wait_for_writes_in_flight(run: Run, node: Node) -> None:
    volume = shared(run, "--rw", pair("alpha"))["volume"]
    with node.target().failures.hold("apply.closed") as gate:
        code, out, err = run("mode", volume, "alpha", "ro", "--immediate")
        assert (code, err, "may still land" in out) == (7, "", True)
        assert gate.reached.wait(20)
        assert node.live(volume) != {initiator("alpha"): "rw"}
    code, out, _ = run("mode", volume, "alpha", "ro")
    assert (code, out.splitlines()[1].split()[2]) == (0, "fenced")
    code, _, err = run("mode", volume, "alpha", "rw", "--immediate")
    assert (code, "attachment.fence is for the mode ro" in err) == (1, True)


def config(run: Run, row: Fields, form: str) -> str:
    code, out, err = run("consumer-config", row["id"], "--format", form)
    assert (code, err) == (0, "")
    return out


def test_each_form_has_the_target_the_initiator_and_the_secret(run: Run) -> None:
    (row,) = shared(run, "--ro", pair("beta"))["attachments"]
    info = row["connection_info"]
    for form in ("iscsiadm", "libvirt", "ipxe"):
        text = config(run, row, form)
        for value in (info["target_iqn"], initiator("beta")):
            assert value in text, form
        for key in ("auth_username", "auth_password"):
            assert info[key] in text, form
    ends = f"::{PORT}:0:{info['target_iqn']}"
    assert config(run, row, "ipxe").rstrip().endswith(ends)


def test_a_read_only_disk_of_libvirt_is_marked(run: Run) -> None:
    both = shared(run, "--rw", pair("alpha"), "--ro", pair("beta"))["attachments"]
    writer, reader = (ElementTree.fromstring(config(run, r, "libvirt")) for r in both)
    assert writer.find("readonly") is None
    assert reader.find("readonly") is not None
    assert reader.findtext("serial") == both[1]["volume_id"]
    for disk in (writer, reader):
        assert disk.find("shareable") is not None
        driver = disk.find("driver")
        assert driver is not None
        assert driver.get("cache") == "none"


def test_a_read_only_disk_is_mounted_without_its_journal(run: Run) -> None:
    both = shared(run, "--rw", pair("alpha"), "--ro", pair("beta"))["attachments"]
    writer, reader = (config(run, row, "fstab") for row in both)
    assert "noload" not in writer
    assert " ext4 ro,noload," in reader
    assert " xfs ro,norecovery," in reader
    wwid = config(run, both[1], "multipath").split("wwid ")[1].split()[0]
    assert f"wwn-0x{wwid[1:]} " in reader
    assert len(wwid) == 33


def test_a_reservation_has_no_config_and_a_reason(run: Run, node: Node) -> None:
    volume = shared(run)["volume"]
    row = node.services.attachments.create(CTX, NewAttachment(volume))
    code, _, err = run("consumer-config", row.id)
    assert (code, "is reserved and has no host" in err) == (1, True)


def broken(run: Run, host: str, volume: str) -> tuple[list[str], str]:
    """The steps up to the broken one, and its cure."""
    code, out, err = run("why", host, volume)
    assert (code, err) == (5, "")
    *steps, cure = out.splitlines()[1:]
    states = [step.split()[1] for step in steps]
    assert states == ["ok"] * (len(steps) - 1) + ["BROKEN"]
    return [step.split()[0] for step in steps], cure.removeprefix("What to do: ")


def test_why_names_the_one_broken_step(run: Run, node: Node) -> None:
    made = shared(run, "--rw", pair("alpha"))
    volume, (row,) = made["volume"], made["attachments"]
    steps, cure = broken(run, "nobody", volume)
    assert (steps[-1], cure.split()[:2]) == ("attachment", ["lunshare", "attach"])
    # Nothing listens at the portal of the fake target.
    assert broken(run, "alpha", volume)[0][-1] == "portal"
    with socket.create_server((LOOPBACK, PORT)):
        steps, cure = broken(run, "alpha", volume)
        before = ["volume", "attachment", "portal", "ACL", "mode", "login"]
        assert steps == [*before, "session"]
        assert f"consumer-config {row['id']}" in cure
        auth = node.services.attachments.get(CTX, row["id"]).connection_info
        assert auth is not None
        pair_of = Auth(auth["auth_username"], auth["auth_password"])
        session = node.target().login(volume, initiator("alpha"), pair_of)
        assert session.alive
        code, out, _ = run("why", "alpha", volume)
        assert (code, "What to do" in out) == (0, False)
        node.target().remove(volume)
        assert broken(run, "alpha", volume)[0][-1] == "ACL"


def test_why_says_what_is_wrong_with_the_volume(run: Run, node: Node) -> None:
    volume = shared(run, "--rw", pair("alpha"))["volume"]
    node.services.status_resetter.reset(CTX, volume, Reset(status="error"))
    assert broken(run, "alpha", volume)[0] == ["volume"]


def test_watched_hosts_are_printed_until_it_is_ended(run: Run, endpoint: str) -> None:
    volume = shared(run, "--rw", pair("alpha"))["volume"]
    command = [sys.executable, "-m", "lunshare.agent.cli.main", "hosts", volume]
    with subprocess.Popen(
        [*command, "--watch", "--endpoint", endpoint], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert next(watching.stdout).startswith("VOLUME")
        assert " rw " in next(watching.stdout)
        run("mode", volume, "alpha", "ro")
        assert any(" ro " in line for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 0
