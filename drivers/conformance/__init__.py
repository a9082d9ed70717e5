# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit that a driver proves itself with; needs pytest.

A driver binds it with one fixtures class and one empty test class::

    class TestMine(MyFixtures, VolumeContract):
        pass

``fixtures`` says what to override, ``fakes`` is a complete example,
docs/adding-a-driver.md tells the way. Call
``pytest.register_assert_rewrite("lunshare.drivers.conformance")`` in conftest.py,
otherwise failures show no values.
"""
