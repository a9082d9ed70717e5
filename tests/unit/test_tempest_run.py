# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What ``make tempest`` decides by itself: what runs, and what counts as passed."""

from __future__ import annotations

import pytest

from tests.tempest import exclusions, results, suite, tempest_run
from tests.tempest.results import Result

A = "tempest.api.volume.test_a.First.test_one"
B = "tempest.api.volume.test_a.First.test_two"
C = "tempest.api.volume.test_c.Second.test_one"


def result(test: str, status: str = "success", text: str = "") -> Result:
    return Result(test, status, 1.0, text)


def test_every_exclusion_in_the_files_has_a_reason():
    texts = [path.read_text() for path in (exclusions.FILE, exclusions.LAB_FILE)]
    reasons = exclusions.read(*texts)
    assert len(reasons) == sum(len(exclusions.read(text)) for text in texts)
    assert all(reason.strip() for reason in reasons.values())


def test_an_exclusion_leaves_out_the_tests_that_it_matches():
    (found,) = exclusions.apply({r"First\.": "no such service"}, [A, B, C])
    assert (found.reason, found.tests) == ("no such service", (A, B))
    assert suite.choose([A, B, C], [found], ()) == [C]


def test_an_exclusion_without_a_test_is_an_error():
    with pytest.raises(AssertionError, match="test_three finds no test"):
        exclusions.apply({"test_three": "why"}, [A, B, C])
    with pytest.raises(AssertionError, match="First finds no test"):
        exclusions.apply({"test_a": "why", "First": "all of it is out"}, [A, B, C])


def test_an_exclusion_is_listed_once():
    twice = '[[exclude]]\nreason = "r"\ntests = ["a", "a"]\n'
    with pytest.raises(AssertionError, match="a is listed twice"):
        exclusions.read(twice)


def test_a_class_stays_in_one_process():
    ids = [f"{test}[id-1,smoke]" for test in (A, C, B)]
    assert tempest_run.split(ids, 2) == [[ids[0], ids[2]], [ids[1]]]
    assert tempest_run.split(ids, 8) == tempest_run.split(ids, 2)
    assert results.name(ids[0]) == A


def test_all_passed(capsys: pytest.CaptureFixture[str]):
    excluded = exclusions.apply({"Second": "no such service"}, [A, B, C])
    assert suite.report([A, B], [result(A), result(B)], excluded) == 0
    printed = capsys.readouterr().out
    assert "tempest: 2 passed, 0 failed, 1 excluded" in printed
    assert "excluded   1: no such service" in printed


def test_leftovers_on_the_storage_fail_the_run(capsys: pytest.CaptureFixture[str]):
    assert suite.report([A], [result(A)], [], ["volume-1"]) == 1
    assert "left behind: volume-1" in capsys.readouterr().out


@pytest.mark.parametrize("status", ["fail", "skip", "inprogress", "unknown"])
def test_a_failed_test_fails_the_run(status: str, capsys: pytest.CaptureFixture[str]):
    text = "Traceback\n  line\ntempest.lib.Error: the cause\nDetails: more\n"
    found = [result(A), result(B, status, text)]
    assert suite.report([A, B], found, []) == 1
    printed = capsys.readouterr().out
    assert f"{status}: {B}\n    tempest.lib.Error: the cause" in printed
    assert "1 passed, 1 failed" in printed


def test_a_skipped_class_and_a_lost_test_fail_the_run(
    capsys: pytest.CaptureFixture[str],
):
    found = [result(A), result("setUpClass (tempest.First)", "skip", "not available")]
    assert suite.report([A, B], found, []) == 1
    printed = capsys.readouterr().out
    assert "not available" in printed
    assert f"no result: {B}" in printed
