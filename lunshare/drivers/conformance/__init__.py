# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: the tests that every driver must pass. Needs pytest.

A driver binds it with one fixtures class and one empty test class::

    class TestMine(MyFixtures, VolumeContract):
        pass

``fixtures`` lists what to override. ``fakes`` is a complete example.
docs/adding-a-driver.md has all the steps. Call
``pytest.register_assert_rewrite("lunshare.drivers.conformance")`` in conftest.py,
otherwise failures do not show values.
"""
