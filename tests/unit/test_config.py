# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options: how they are shown, and how a former name is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oslo_config import cfg

from lunshare.agent import show_config
from lunshare.agent.conf import node
from lunshare.agent.main import configure
from lunshare.agent.model.errors import StartupError
from tests.restart.test_daemon import WRONG

CONFIG = """
[DEFAULT]
enabled_backends = one,two
reconcile_interval = 9
[database]
connection = sqlite:////secret.sqlite
[one]
volume_driver = fake
target_driver = fake
[two]
volume_driver = fake
target_driver = fake
wipe_rate = 7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lunshare.conf"


def sections(text: str) -> dict[str, dict[str, str]]:
    """What --show-config prints: section, option, and the rest of its line."""
    found: dict[str, dict[str, str]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            found[line.strip("[]")] = options = {}
        else:
            name, _, rest = line.partition(" = ")
            options[name] = rest
    return found


def shown(*arguments: str) -> str:
    return show_config.text(configure([*arguments, "--show-config"]))


def test_show_config_prints_each_option_with_its_source(file: Path) -> None:
    file.write_text(CONFIG)
    found = sections(shown("--config-file", str(file), "--listen", "unix:/a,unix:/b"))
    assert next(iter(found)) == "DEFAULT"
    assert {"database", "helper", "tls", "scheduler", "one", "two"} < set(found)
    assert found["DEFAULT"]["enabled_backends"] == f"one, two  # {file}"
    assert found["DEFAULT"]["reconcile_interval"] == f"9  # {file}"
    assert found["DEFAULT"]["listen"] == "unix:/a, unix:/b  # command line"
    assert found["DEFAULT"]["stop_wait"] == "5.0  # default"
    assert found["DEFAULT"]["debug"] == "False  # default"
    assert found["one"]["wipe_rate"] == "100  # default"
    assert found["two"]["wipe_rate"] == f"7  # {file}"
    assert found["one"]["fake_wipe"] == "False  # default"
    assert found["one"]["volume_backend_name"].startswith("(not set: the section's")
    assert found["database"]["connection"] == f"****  # {file}"
    assert set(found["one"]) == set(found["two"])


def test_show_config_hides_the_password_for_nova(file: Path) -> None:
    section = "[nova]\nauth_type = password\nauth_url = http://k\n"
    section += "username = u\npassword = word\n"
    file.write_text(CONFIG + section)
    found = sections(shown("--config-file", str(file)))["nova"]
    assert found["username"] == f"u  # {file}"
    assert found["password"] == f"****  # {file}"
    file.write_text(CONFIG + "[nova]\nusername = u\n")
    with pytest.raises(StartupError, match="auth_type is missing"):
        shown("--config-file", str(file))


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_show_config_reports_the_errors_of_the_start(
    text: str, sentence: str, file: Path
) -> None:
    file.write_text(f"[DEFAULT]\n{text}\n")
    with pytest.raises((StartupError, cfg.Error), match=re.escape(sentence)):
        shown("--config-file", str(file))


def test_no_file_can_ask_to_show_the_configuration(file: Path) -> None:
    file.write_text("[DEFAULT]\nshow_config = true\n")
    with pytest.raises(StartupError, match="show_config: no such option"):
        configure(["--config-file", str(file)])


def test_a_renamed_option_is_read_with_a_warning_that_names_the_new_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renamed = cfg.IntOpt("new_name", default=1, deprecated_name="former_name")
    monkeypatch.setattr(node, "OPTIONS", [*node.OPTIONS, renamed])
    file.write_text("[DEFAULT]\nformer_name = 5\n")
    # With --show-config, since oslo.log would replace the handlers of this test.
    conf = configure(["--config-file", str(file), "--show-config"])
    assert conf.new_name == 5
    (warning,) = [record.getMessage() for record in caplog.records]
    assert 'Option "former_name" from group "DEFAULT" is deprecated' in warning
    assert 'Use option "new_name" from group "DEFAULT"' in warning
    # oslo.config reads no other spelling of a former name.
    file.write_text("[DEFAULT]\nformer-name = 5\n")
    with pytest.raises(StartupError, match="former-name: no such option"):
        configure(["--config-file", str(file)])


def test_an_option_that_moved_to_another_section_is_read_from_the_former_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = cfg.IntOpt(
        "new_name", deprecated_name="former_name", deprecated_group="helper"
    )
    monkeypatch.setattr(node, "OPTIONS", [*node.OPTIONS, moved])
    file.write_text("[helper]\nformer_name = 5\n")
    assert configure(["--config-file", str(file)]).new_name == 5
    file.write_text("[database]\nformer_name = 5\n")
    with pytest.raises(StartupError, match="former_name: no such option"):
        configure(["--config-file", str(file)])
