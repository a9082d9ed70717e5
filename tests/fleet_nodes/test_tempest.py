# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tempest's tests of Block Storage against the stock Cinder with lunshare's driver."""

from __future__ import annotations

import time
from pathlib import Path

from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.transcript import say
from tests.stands.waiting import until
from tests.tempest import exclusions, pins, results, suite, tempest_run

EXCLUDED = Path(__file__).with_name("tempest_exclusions.toml")
_PROCESSES = 2


def test_tempest_passes_and_leaves_nothing(fleet: Fleet, tmp_path: Path) -> None:
    venv, began = pins.venv(), time.monotonic()
    listed = tempest_run.tests(tempest_run.listed(venv))
    ids = {results.name(test): test for test in listed}
    excluded = exclusions.apply(exclusions.read(EXCLUDED.read_text()), [*ids])
    chosen = suite.choose(ids, excluded, ())
    backends = [f"{node}-thin" for node in fleet.nodes]
    keystone, glance = fleet.controller.keystone, fleet.controller.glance
    image = glance.image(keystone.token)
    config = tempest_run.configure(tmp_path, keystone.url, backends, image, backup=True)
    lists = tempest_run.split((ids[test] for test in chosen), _PROCESSES)
    streams = tempest_run.run(venv, config, lists)
    found = [each for path in streams for each in results.read(venv, path)]
    good, seconds = sum(each.good for each in found), time.monotonic() - began
    say(f"Tempest: {good} of {len(chosen)} tests passed, in {seconds:.0f} s; excluded:")
    for reason, count in suite.reasons(excluded).items():
        say(f"  {count:3} {reason}")
    assert suite.report(chosen, found, excluded) == 0
    nodes = fleet.nodes.values()
    until(lambda: not any(node.disks() for node in nodes), "no disk is left", 60)
    assert not list(fleet.differences())
