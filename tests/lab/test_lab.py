# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the lab that need no guest."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import cache, command_line, host, main
from tests.lab.command_line import Stage
from tests.lab.uml import processor


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUNSHARE_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_each_boot_of_the_guest_has_its_command():
    words = [
        "--kernel",
        "6.12",
        "--",
        "a",
        "-x",
        "--reboot",
        "--",
        "b",
        "--cut",
        "--",
        "c",
    ]
    options = command_line.parse(words)
    assert options.kernel == "6.12"
    assert options.stages == [
        Stage("", ["a", "-x"]),
        Stage("reboot", ["b"]),
        Stage("cut", ["c"]),
    ]


def test_command_may_have_options_named_like_those_of_run():
    assert command_line.parse(["--", "x", "--cut", "y"]).stages == [
        Stage("", ["x", "--cut", "y"])
    ]


@pytest.mark.parametrize("words", [[], ["--"], ["--", "a", "--cut", "--"]])
def test_missing_command_is_an_error(words):
    with pytest.raises(SystemExit, match="2"):
        command_line.parse(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--keep", "--", "a"],
        ["--with", "cinder", "--", "a"],
        ["--", "a", "--cut", "--", "b"],
    ],
)
def test_quick_guest_takes_one_command_only(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        command_line.parse(["--kernel", "uml", *words])
    assert "--kernel uml takes one command" in capsys.readouterr().err


def test_network_card_has_a_tap_device_and_an_address():
    words = ["--kernel", "uml", "--network", "tap-1=10.0.0.2/24", "--", "a"]
    assert command_line.parse(words).network == "tap-1=10.0.0.2/24"
    assert command_line.parse(["--", "a"]).network == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--network", "tap1=10.0.0.2/24"], "--network needs --kernel uml"),
        (["--kernel", "uml", "--network", "tap1"], "expected DEVICE=ADDRESS/PREFIX"),
        (["--kernel", "uml", "--network", "tap1=10.0.0.2"], "expected DEVICE"),
        (["--kernel", "uml", "--network", "a b=10.0.0.2/24"], "expected DEVICE"),
    ],
)
def test_wrong_network_card_is_refused(words, sentence, capsys):
    with pytest.raises(SystemExit, match="2"):
        command_line.parse([*words, "--", "a"])
    assert sentence in capsys.readouterr().err


def test_quick_guests_at_the_same_time_use_all_processors(tmp_path):
    allowed = os.sched_getaffinity(0)
    chosen = [processor.choose(tmp_path) for _ in range(2 * len(allowed))]
    assert sorted(chosen) == sorted(2 * list(allowed))


def test_processor_of_a_guest_that_ended_is_chosen_again(tmp_path):
    choose = "from tests.lab.uml import processor\n"
    choose += f"print(processor.choose(pathlib.Path({str(tmp_path)!r})))"
    command = [sys.executable, "-c", f"import pathlib\n{choose}"]
    ran = [subprocess.check_output(command, cwd=main.REPOSITORY) for _ in range(2)]
    assert ran[0] == ran[1]


def test_entry_is_built_once_for_parallel_callers():
    built = []

    def build(out: Path) -> None:
        built.append(out)
        (out / "file").touch()

    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: cache.entry("thing", ["a"], build), range(4)))
    assert len(built) == len(paths) == 1
    assert (paths.pop() / "file").exists()


def test_other_inputs_are_another_entry():
    one = cache.entry("thing", ["a", "bc"], lambda _out: None)
    assert cache.entry("thing", ["ab", "c"], lambda _out: None) != one


def test_incomplete_entry_is_never_visible(own_cache):
    def fail(out: Path) -> None:
        (out / "file").touch()
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        cache.entry("thing", [], fail)
    assert [path for path in own_cache.iterdir() if path.is_dir()] == []
    path = cache.entry("thing", [], lambda _out: None)
    assert list(path.iterdir()) == []


def test_only_sources_of_debian_12_are_used():
    listed = """\
http://mirror.example/debian/ bookworm main Packages Debian
http://mirror.example/debian/ bookworm main Translations Debian
http://mirror.example/debian-security/ bookworm-security main Packages Debian
http://mirror.example/debian/ trixie main Packages Debian
http://other.example/apt bookworm main Packages Somebody else
"""
    assert list(host._bookworm(listed)) == [
        "deb http://mirror.example/debian/ bookworm main",
        "deb http://mirror.example/debian-security/ bookworm-security main",
    ]


def test_parallel_runs_install_missing_programs_once(monkeypatch):
    installed: list[str] = []

    def install(packages):
        assert not installed, "apt is already running, or has run"
        time.sleep(0.05)
        installed.extend(packages)

    monkeypatch.setattr(host, "_missing", lambda: [] if installed else ["gcc"])
    monkeypatch.setattr(host, "_install", install)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: host.need_programs(), range(4)))
    assert installed == ["gcc"]
