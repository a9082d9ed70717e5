# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The process itself: what it loads, how it starts, and how it refuses to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stands.daemon import DAEMON, FAKE, answered, daemon, refused
from tests.stands.servers import ROOT, free_port

#: Configurations that are wrong, and what the error sentence contains.
WRONG = [
    ("", "enabled_backends is empty"),
    ("enabled_backends = a,a", "names a backend twice"),
    (
        "enabled_backends = a\nreconcle_interval = 9\n[a]\nvolume_driver = fake",
        "[DEFAULT]: reconcle_interval: no such option",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\n[database]\nconection = a",
        "[database]: conection: no such option",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\n"
        "[scheduler]\ntransport_url = rabbit://user:secret@bus",
        "[scheduler] transport_url: lunshared no longer reports to the scheduler",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\n"
        "[scheduler]\nreport-interval = 60",
        "with volume_driver = lunshare.cinder.LunshareDriver",
    ),
    ("enabled_backends = a", "backend section [a] is missing"),
    ("enabled_backends = a\n[a]\nvolume_driver = no", "choose one of: fake, lvm"),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = no",
        "choose one of: fake, lio",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "fake_wipe = true\nfake_whipe = true",
        "[a]: fake_whipe: no such option; its drivers know ",
    ),
    (  # oslo.config would ignore it
        "enabled_backends = a\nreconcile-interval = 9\nlog-file = /tmp/a\n[a]\n"
        "volume_driver = fake",
        "[DEFAULT]: log-file, reconcile-interval: no such option",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "fake-wipe = true",
        "[a]: fake-wipe: no such option; its drivers know ",
    ),
    ("enabled_backends = a\nmixed_modes_per_host = both\n[a]", "mixed_modes_per_host"),
    (
        "listen = 0.0.0.0:8776\nenabled_backends = a\n[a]\nvolume_driver = fake",
        "in clear text: write https://0.0.0.0:8776",
    ),
    (
        "listen = https://0.0.0.0:8776\nenabled_backends = a\n[a]\n"
        "volume_driver = fake",
        "would make everyone who reaches it an administrator",
    ),
    (
        "listen = 127.0.0.1:8776\nenabled_backends = a\n[a]\nvolume_driver = fake",
        "set noauth_on_loopback = true",
    ),
    (
        "listen = https://127.0.0.1:8776\nnoauth_on_loopback = true\n"
        "enabled_backends = a\n[a]\nvolume_driver = fake",
        "listen = https://127.0.0.1:8776 needs a certificate: set cert_file",
    ),
    (
        "metrics_listen = unix:/x\nenabled_backends = a\n[a]\nvolume_driver = fake",
        "metrics_listen names a unix socket: give HOST:PORT",
    ),
    (
        "metrics_listen = https://127.0.0.1:9795\nenabled_backends = a\n[a]\n"
        "volume_driver = fake",
        "metrics_listen = https://127.0.0.1:9795 needs a certificate: set cert_file",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "[database]\nconnection = nonsense",
        "[database] connection is not usable",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "[database]\nconnection = postgresql://localhost/lunshare",
        "[database] connection is of postgresql, and lunshare needs SQLite",
    ),
    (  # $ refers to another option
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "[database]\nconnection = sqlite:////x?$secret",
        "[database] connection: it has a $ that no name of an option follows; write $$",
    ),
    (  # to itself
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "[database]\nconnection = sqlite:////secret/$connection",
        "[database] connection: it has a $ that no name of an option follows; write $$",
    ),
    (
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "[nova]\nauth_type = password\nauth_url = http://127.0.0.1:9\n"
        "password = pa$secret",
        "[nova] password: it has a $ that no name of an option follows; write $$",
    ),
    (  # an option that the command line has too
        "log_file = /tmp/$secret\nenabled_backends = a\n[a]\nvolume_driver = fake",
        "[DEFAULT] log_file: it has a $ that no name of an option follows; write $$",
    ),
    ("enabled_backends = a\npassword secret\n[a]", "line 3: "),
    (  # in memory: each thread would have a separate database
        "enabled_backends = a\n[a]\nvolume_driver = fake\ntarget_driver = fake\n"
        "[database]\nconnection = sqlite://",
        "[database] connection is not usable",
    ),
]
UNREACHABLE = (
    "enabled_backends = a\n[a]\nvolume_driver = lvm\n"
    "[helper]\nsocket = /nonexistent/helper.sock",
    "no backend works: the root helper does not answer (",
)


@pytest.fixture
def running(tmp_path: Path):
    with daemon(tmp_path) as started:
        yield started


def test_the_daemon_starts_as_any_user_and_ends_at_sigterm(running) -> None:
    process, url, _ = running
    assert json.loads(answered(f"{url}/readyz", process))["ready"] is True
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_second_daemon_on_the_same_state_path_is_refused(running) -> None:
    process, url, state = running
    answered(f"{url}/healthz", process)
    other = f"127.0.0.1:{free_port()}"
    line = refused("--config-file", FAKE, "--state-path", state, "--listen", other)
    assert line.startswith(
        f"lunshared: another lunshared already uses state_path {state}"
    )


def test_eventlet_is_not_in_the_process(running) -> None:
    process, url, _ = running
    answered(f"{url}/readyz", process)
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "sqlite" in mapped  # maps show extension modules, so the check works
    assert "greenlet" not in mapped
    code = (
        "import sys, lunshare.agent.main, lunshare.drivers.lvm, lunshare.drivers.fake;"
        "import lunshare.drivers.targets.lio;"
        "sys.exit('eventlet' in sys.modules or 'greenlet' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_daemon_starts_no_other_process(running) -> None:
    process, url, _ = running
    answered(f"{url}/readyz", process)
    tasks = list(Path(f"/proc/{process.pid}/task").glob("*/children"))
    assert tasks
    assert "".join(task.read_text() for task in tasks) == ""


@pytest.mark.parametrize(("text", "sentence"), [*WRONG, UNREACHABLE])
def test_a_wrong_configuration_is_refused_in_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    config = tmp_path / "lunshare.conf"
    config.write_text(f"[DEFAULT]\n{text}\n")
    line = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert sentence in line
    assert "secret" not in line


@pytest.mark.parametrize("option", ["--config-file", "--config-dir"])
def test_a_configuration_that_is_not_utf_8_is_refused_in_one_sentence(
    option: str, tmp_path: Path
) -> None:
    config = tmp_path / "lunshare.conf"
    config.write_bytes("[DEFAULT]\n# für secret\n".encode("latin-1"))
    path = config if option == "--config-file" else tmp_path
    line = refused(option, path, "--state-path", tmp_path / "state")
    assert f"{config}, line 2: it is not UTF-8" in line
    assert "secret" not in line


def test_a_configuration_with_a_byte_order_mark_is_refused_in_one_sentence(
    tmp_path: Path,
) -> None:
    config = tmp_path / "lunshare.conf"
    config.write_text("[DEFAULT]\n", encoding="utf-8-sig")
    line = refused("--config-file", config, "--state-path", tmp_path / "state")
    assert line == (
        f"lunshared: {config}, line 1: it begins with a byte order mark: write it as"
        " UTF-8 without one"
    )


def test_a_state_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = refused("--config-file", FAKE, "--state-path", tmp_path / "file" / "state")
    assert "cannot be written" in line
    assert "--state-path" in line


def test_show_config_prints_the_configuration_and_starts_nothing(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    options = ["--config-file", str(FAKE), "--state-path", str(state)]
    done = subprocess.run(
        [*DAEMON, *options, "--show-config"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[DEFAULT]\n")
    assert f"state_path = {state}  # command line\n" in done.stdout
    assert not state.exists()


def test_show_config_of_a_wrong_configuration_ends_with_one_sentence(
    tmp_path: Path,
) -> None:
    config = tmp_path / "lunshare.conf"
    config.write_text("[DEFAULT]\nreconcile_interval = 0\n")
    line = refused("--config-file", config, "--show-config")
    assert line.startswith("lunshared: Value for option reconcile_interval")
