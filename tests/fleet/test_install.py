# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``pip install lunshare`` without an extra: the drivers and the helper, for a Cinder.

Once with only the libraries of ``install_requires``, and once beside Cinder's own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.lab.steps import sh
from tests.stands import installed
from tests.stands.cinder_programs import python
from tests.stands.installed import required
from tests.stands.servers import ROOT

# Prints one JSON object. The conformance kit needs pytest, as its users have it.
_IMPORTS = """
import importlib, importlib.metadata, json, pkgutil, sys
from importlib.util import find_spec

for top in sys.argv[2:]:
    path = importlib.import_module(top).__path__
    for found in pkgutil.walk_packages(path, f"{top}."):
        if not found.name.startswith("lunshare.drivers.conformance"):
            importlib.import_module(found.name)
print(json.dumps({
    "modules": sorted(name for name in sys.modules if name.startswith("lunshare.")),
    "agent": [name for name in sys.modules if name.startswith("lunshare.agent")],
    "from": importlib.import_module(sys.argv[2]).__file__,
    "libraries": [name for name in sys.argv[1].split(",") if find_spec(name)],
    "requires": importlib.metadata.requires("lunshare"),
}))
"""

# Prints the requirements of lunshare that this environment does not fulfil.
_UNFULFILLED = """
import importlib.metadata, sys
from packaging.requirements import Requirement

for line in sys.stdin:
    wanted = Requirement(line.strip())
    has = importlib.metadata.version(wanted.name)
    if not wanted.specifier.contains(has):
        print(line, has)
"""

#: The import names of the libraries of the extra ``daemon``.
DAEMON = {
    "SQLAlchemy": "sqlalchemy",
    "oslo.concurrency": "oslo_concurrency",
    "oslo.log": "oslo_log",
    "oslo.policy": "oslo_policy",
    "oslo.reports": "oslo_reports",
    "prometheus-client": "prometheus_client",
}


def daemon_libraries() -> list[str]:
    """The import names of what only the daemon needs."""
    names = [line.partition(">=")[0] for line in required("daemon")]
    return [DAEMON.get(name, name) for name in names]


@pytest.fixture(scope="session")
def bare() -> Path:
    """A Python with ``install_requires`` and the build backend, and nothing else."""
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    packages = [*required(), *backend["requires"]]
    return installed.venv("lunshare-bare", packages) / "bin/python"


@pytest.fixture(scope="session")
def site(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree as pip installs it: packages, programs and data files."""
    tree, site = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("site")
    for name in sh(["git", "-C", ROOT, "ls-files", "-coz", "--exclude-standard"]).split(
        "\0"
    ):
        source = ROOT / name
        if name and (source.is_symlink() or source.is_file()):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name, follow_symlinks=False)
    pip = [bare, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    sh([*pip, *offline, "--target", site, tree])
    return site


def run(
    python: Path, site: Path, *words: str, sent: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run this Python outside the checkout, with what pip has installed."""
    return subprocess.run(
        [str(python), "-W", "ignore", *words],
        cwd=site,
        input=sent,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=False,
        capture_output=True,
        text=True,
    )


def imports(python: Path, site: Path, *tops: str) -> dict[str, list[str]]:
    done = run(python, site, "-c", _IMPORTS, ",".join(daemon_libraries()), *tops)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert str(found["from"]).startswith(str(site))
    assert found["agent"] == []
    return dict(found)


def test_drivers_and_helper_need_no_library_of_the_daemon(
    bare: Path, site: Path
) -> None:
    found = imports(bare, site, "lunshare.drivers", "lunshare.helper")
    assert found["libraries"] == []
    drivers = ("lvm.lvm_driver", "nfs.nfs_driver", "targets.lio")
    modules = {
        "lunshare.helper.main",
        *(f"lunshare.drivers.{name}" for name in drivers),
    }
    assert modules <= set(found["modules"])
    always = [line for line in found["requires"] if "extra ==" not in line]
    assert sorted(always) == sorted(required())
    helper = run(bare, site, str(site / "bin/lunshare-helper"), "--help")
    assert helper.returncode == 0, helper.stderr
    assert "--user" in helper.stdout
    assert os.access(site / "share/lunshare/systemd/install", os.X_OK)


@pytest.mark.parametrize("program", ["lunshared", "lunshare-backup"])
def test_programs_of_the_daemon_name_the_extra(
    bare: Path, site: Path, program: str
) -> None:
    done = run(bare, site, str(site / "bin" / program))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{program}: the library ")
    assert line.endswith("pip install 'lunshare[daemon]' in this environment")


def test_driver_is_imported_beside_the_libraries_of_cinder(site: Path) -> None:
    found = imports(python(), site, "lunshare.cinder", "lunshare.drivers")
    assert "lunshare.cinder.volume_driver" in found["modules"]
    # Cinder brings some of them; not that of the API.
    assert "falcon" not in found["libraries"]
    done = run(python(), site, "-c", _UNFULFILLED, sent="\n".join(required()))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
