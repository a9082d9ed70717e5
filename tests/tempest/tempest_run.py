# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tempest's own programs: its configuration, the list of its tests, a run of them.

stestr itself would look for the tests once more in each run, which takes as long as a
tenth of them; so its runner is started here, once per process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.lab import cache
from tests.lab.steps import sh, step
from tests.stands.keystone import PASSWORD, REGION
from tests.tempest import node_under_test, pins

PACKAGE = "tempest.api.volume"

_CONFIG = """
[DEFAULT]
log_dir = {directory}
log_file = tempest.log
[oslo_concurrency]
lock_path = {directory}/lock
[auth]
use_dynamic_credentials = true
create_isolated_networks = false
tempest_roles = member
admin_username = admin
admin_project_name = admin
admin_domain_name = Default
admin_password = {password}
[identity]
auth_version = v3
uri_v3 = {keystone}
region = {region}
[service-clients]
http_timeout = 300
[service_available]
cinder = true
nova = false
# No test that runs uses an image or a network, but without these two some classes fail
# in setUpClass (images_client), and others are skipped (create_default_network).
glance = true
neutron = true
swift = false
[volume]
catalog_type = block-storage
backend_names = {backends}
storage_protocol = iSCSI
vendor_name = lunshare
manage_volume_ref = source-name, {disk}
manage_snapshot_ref = source-name, {snapshot}
max_microversion = latest
build_timeout = 300
[compute]
image_ref = {image}
[volume-feature-enabled]
backup = {backup}
multi_backend = true
manage_volume = true
manage_snapshot = true
[compute-feature-enabled]
volume_multiattach = true
"""
_RUNNER = "stestr.subunit_runner.run"
_LIST = """
import sys, unittest
from testtools import iterate_tests
top, tests = sys.argv[1:]
loader = unittest.TestLoader()
for test in iterate_tests(loader.discover(tests, top_level_dir=top)):
    print(test.id())
sys.exit("".join(loader.errors) or 0)
"""


def listed(venv: Path) -> Path:
    """A folder with ids.txt: all tests of Block Storage; made once."""

    def build(out: Path) -> None:
        words = [venv / "bin/python", "-W", "ignore", "-c", _LIST, *_places(venv)]
        with step("list the tests (once)"):
            lines = sh(words, env=pins.environ(), cwd=out).splitlines()
        ids = [line for line in lines if line.startswith(PACKAGE)]
        (out / "ids.txt").write_text("".join(f"{each}\n" for each in ids))

    return cache.entry("tempest-tests", [*pins.PACKAGES, _LIST], build)


def tests(folder: Path) -> list[str]:
    """The ids in such a folder, with their attributes."""
    return (folder / "ids.txt").read_text().splitlines()


def split(chosen: Iterable[str], parts: int) -> list[list[str]]:
    """The tests in lists of about the same length; a class is never divided.

    The tests of a class share its volumes, so they run one after the other.
    """
    classes: dict[str, list[str]] = {}
    for test in chosen:
        classes.setdefault(test.partition("[")[0].rpartition(".")[0], []).append(test)
    lists: list[list[str]] = [[] for _ in range(min(parts, len(classes)))]
    for group in sorted(classes.values(), key=len, reverse=True):
        min(lists, key=len).extend(group)
    return lists


def configure(
    directory: Path,
    keystone: str,
    backends: Iterable[str],
    image: str = "",
    backup: bool = False,
) -> Path:
    """Write tempest.conf for this Keystone and a node with these; its path.

    ``image``: the id of an image in Glance. ``backup``: whether cinder-backup runs.
    """
    path = directory / "tempest.conf"
    path.write_text(
        _CONFIG.format(
            directory=directory,
            keystone=keystone,
            password=PASSWORD,
            region=REGION,
            backends=",".join(backends),
            image=image,
            backup=str(backup).lower(),
            disk=node_under_test.DISK,
            snapshot=node_under_test.SNAPSHOT,
        )
    )
    return path


def run(venv: Path, config: Path, lists: Sequence[Iterable[str]]) -> list[Path]:
    """Run each list in its own process; the subunit streams with the results."""
    processes, streams = [], []
    try:
        for number, ids in enumerate(lists):
            chosen = config.with_name(f"tests-{number}.txt")
            chosen.write_text("".join(f"{test}\n" for test in ids))
            processes.append(_start(venv, config, chosen))
            streams.append(chosen.with_suffix(".subunit"))
        for process in processes:
            process.wait()
    finally:
        for process in processes:
            process.kill()
    return streams


def _start(venv: Path, config: Path, chosen: Path) -> subprocess.Popen[bytes]:
    """A process for the tests in this file, with its output beside it."""
    top, where = _places(venv)
    words = [venv / "bin/python", "-W", "ignore", "-m", _RUNNER, "discover"]
    words += ["-t", top, where, "--load-list", chosen]
    stream, log = chosen.with_suffix(".subunit"), chosen.with_suffix(".log")
    with stream.open("wb") as out, log.open("wb") as errors:
        return subprocess.Popen(
            [str(word) for word in words],
            env=pins.environ(TEMPEST_CONFIG=str(config)),
            cwd=config.parent,
            stdout=out,
            stderr=errors,
        )


def _places(venv: Path) -> tuple[Path, Path]:
    """The directory of all packages, and that of the tests."""
    top = next(venv.glob("lib/python*/site-packages"))
    return top, top.joinpath(*PACKAGE.split("."))
