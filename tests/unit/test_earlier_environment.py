# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Commands of an environment that was installed before folders moved.

Its scripts import the names of that time, and find only the folders of that time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agent", "cinder", "drivers")


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("lunshare", "lunshare.agent.cli.main"),
        ("lunshare-helper", "lunshare.drivers.helper.main"),
    ],
)
def test_a_command_says_in_a_sentence_that_it_has_to_be_installed_again(
    command: str, module: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folders" / "lunshare"
    folder.mkdir(parents=True)
    for name in FOLDERS:
        (folder / name).symlink_to(ROOT / "lunshare" / name)
    script = tmp_path / command
    script.write_text(
        f"import sys\nsys.path[0] = {str(folder.parent)!r}\nfrom {module} import main\n"
    )
    # Without its site-packages, where the folders of today are found.
    words = [sys.executable, "-I", "-S", str(script)]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"{command}: this environment is of an earlier version")
    assert "install it again" in line
