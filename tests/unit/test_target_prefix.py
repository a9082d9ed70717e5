# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Helper and client name targets alike, or the backend is down.

Else a host would be given the name of a target that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.targets.lio import LioTarget
from tests.unit.helper_process import HelperProcess

OURS, THEIRS = "iqn.2026-11.io.lunshare:", "iqn.2020-01.org.example:"


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[HelperProcess]:
    made = HelperProcess(tmp_path)
    made.start(f"target_prefix = {OURS}")
    yield made
    made.stop()


@pytest.mark.parametrize("prefix", [THEIRS, OURS.removesuffix(":")])
def test_another_prefix_than_the_helpers_is_an_error(
    helper: HelperProcess, prefix: str
) -> None:
    options = {**defaults(LioTarget), "target_prefix": prefix}
    target = LioTarget("one", options, helper.client())
    with pytest.raises(Misconfigured) as refused:
        target.check()
    assert (
        f"target_prefix is {prefix} in the backend's section, and {OURS} in"
        " /etc/lunshare/helper.conf: write the same one in both" in str(refused.value)
    )


def test_the_same_prefix_is_accepted(helper: HelperProcess) -> None:
    # Without a target in this kernel there are others.
    problems = helper.client().call("lio.check", timeout=30, prefix=OURS)
    assert "target_prefix" not in " ".join(problems)
