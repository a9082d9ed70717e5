# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare share``: what it prints is run as it is, on the kernel's own initiator."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.host.write_attempts import MISCOMPARED, try_writes
from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.compute_client import SECONDS
from tests.system.units import run
from tests.system.volumes import BorrowVolume

pytestmark = pytest.mark.system

_NAME = Path("/etc/iscsi/initiatorname.iscsi")
_SCHEMA = "/usr/share/libvirt/schemas/domain.rng"
_DOMAIN = """
<domain type="qemu"><name>one</name><memory>65536</memory><os><type>hvm</type></os>
<devices>{disk}</devices></domain>
"""


class Shared:
    """A volume that ``lunshare share`` made, with this kernel as its only host."""

    def __init__(self) -> None:
        initiator = _NAME.read_text().split("InitiatorName=")[1].split()[0]
        words = (
            "share",
            "1",
            "--name",
            "shared",
            "--rw",
            f"here={initiator}@127.0.0.1",
        )
        self.text = run("lunshare", *words)
        self.volume, *_, self.attachment = self.text.splitlines()[1].split()

    def config(self, form: str) -> str:
        return run("lunshare", "consumer-config", self.attachment, "--format", form)

    def login(self) -> None:
        """Run the lines that were printed."""
        lines = [line for line in self.text.splitlines() if line.startswith("iscsiadm")]
        run("sh", "-ec", "\n".join(lines))
        device = Path(self.config("fstab").splitlines()[-1].split()[0])
        until(device.exists, f"{device} appears")
        self.device = device.resolve()

    def logout(self) -> None:
        target = self.text.split("-T ")[1].split()[0]
        subprocess.run(["iscsiadm", "-m", "node", "-T", target, "-u"], check=False)
        subprocess.run(
            ["iscsiadm", "-m", "node", "-T", target, "-o", "delete"], check=False
        )

    def mount(self, line: str, folder: Path) -> None:
        """Mount by one line of fstab."""
        device, _, kind, options, *_ = line.split()
        run("mount", "-t", kind, "-o", options, device, str(folder))

    def why(self) -> tuple[int, str]:
        words = ["lunshare", "why", "here", self.volume]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout


@pytest.fixture
def shared(api: Api) -> Iterator[Shared]:
    made = Shared()
    yield made
    made.logout()
    run("lunshare", "detach", made.volume, "here")
    api.must("DELETE", f"/v3/volumes/{made.volume}")


def is_read_only(device: Path) -> bool:
    """What the host has been told to look at; its session may not be back yet."""
    run("iscsiadm", "-m", "session", "--rescan")
    return run("blockdev", "--getro", str(device)).strip() == "1"


@pytest.mark.timeout(3 * SECONDS)
def test_a_host_writes_and_then_reads_by_what_is_printed(
    shared: Shared, tmp_path: Path
) -> None:
    code, text = shared.why()
    assert (code, text.splitlines()[-2].split()[:2]) == (5, ["session", "BROKEN"])
    shared.login()
    assert shared.why()[0] == 0
    run("mkfs.ext4", "-q", str(shared.device))
    (writing,) = (e for e in shared.config("fstab").splitlines() if e[0] == "/")
    shared.mount(writing, tmp_path)
    (tmp_path / "file").write_text("from the writer")
    run("umount", str(tmp_path))

    assert "fenced" in run("lunshare", "mode", shared.volume, "here", "ro")
    until(lambda: is_read_only(shared.device), "the disk is read-only")
    ext4, xfs = (e for e in shared.config("fstab").splitlines() if e[0] == "/")
    assert " xfs " in xfs
    shared.mount(ext4, tmp_path)
    assert (tmp_path / "file").read_text() == "from the writer"
    with pytest.raises(OSError, match="Read-only"):
        (tmp_path / "file").write_text("not allowed")
    run("umount", str(tmp_path))


def test_the_disk_has_the_identity_of_the_multipath_section(shared: Shared) -> None:
    shared.login()
    wwid = shared.config("multipath").split("wwid ")[1].split()[0]
    scsi_id = "/lib/udev/scsi_id"
    assert run(scsi_id, "-g", "-u", "-d", str(shared.device)).strip() == wwid


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_libvirt_accepts_its_disk(shared: Shared, tmp_path: Path, mode: str) -> None:
    run("lunshare", "mode", shared.volume, "here", mode)
    disk, domain = shared.config("libvirt"), tmp_path / "domain.xml"
    domain.write_text(_DOMAIN.format(disk=disk))
    run("xmllint", "--noout", "--relaxng", _SCHEMA, str(domain))
    assert ("<readonly/>" in disk) == (mode == "ro")
    domain.write_text(domain.read_text().replace("<shareable/>", "<shared/>"))
    with pytest.raises(AssertionError, match="fails to validate"):
        run("xmllint", "--noout", "--relaxng", _SCHEMA, str(domain))


def test_a_reader_is_proven_to_be_one(api: Api, borrow: BorrowVolume) -> None:
    volume = borrow()
    text = run("lunshare", "prove", volume)
    head, *lines, same, proven = text.splitlines()
    assert head.split() == ["COMMAND", "TARGET", "SENSE"]
    assert [line.split()[-2:] for line in lines] == [["refused", "07/27/00"]] * 4
    assert (same.split()[-1], proven.split(":")[0]) == ("before.", "Proven")
    assert api.must("GET", f"/v3/attachments?volume_id={volume}") == {"attachments": []}


def test_a_disk_that_can_be_written_is_not_proven(shared: Shared) -> None:
    """A writer's disk gets only the command that compares, and so keeps its bytes."""
    shared.login()
    attempts, changed = try_writes(str(shared.device))
    assert attempts == [("COMPARE AND WRITE", MISCOMPARED)]
    assert not changed


def test_bash_finds_the_completion() -> None:
    installed = "/usr/share/bash-completion/completions/lunshare"
    shown = run("bash", "-c", f". {installed} && complete -p lunshare")
    assert shown.split()[-3:] == ["-F", "_python_argcomplete", "lunshare"]
