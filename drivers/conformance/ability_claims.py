# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a driver says of itself, held against what it does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from lunshare.drivers.abilities import Abilities, sentence
from lunshare.drivers.errors import Unsupported

_Test = TypeVar("_Test", bound=Callable[..., None])


def asks(*abilities: str) -> Callable[[_Test], _Test]:
    """A test of what not every driver offers.

    Where the driver says no to one of these, it must refuse the first call of it with
    Unsupported: no test is left out.
    """

    def decorated(test: _Test) -> _Test:
        @functools.wraps(test)
        def run(self: Any, *args: Any, **named: Any) -> None:
            noes = [each for each in abilities if not getattr(self.can, each)]
            if noes:
                _refuses(self.can, noes[0], lambda: test(self, *args, **named))
            else:
                _does(self.can, abilities[0], lambda: test(self, *args, **named))

        return run  # type: ignore[return-value]

    return decorated


def lacks(ability: str) -> Callable[[_Test], _Test]:
    """A test of what is enforced by a driver that says yes to ``ability``.

    Where it says no there is nothing that could refuse; the test must fail then,
    for a driver that keeps the promise has to say so.
    """

    def decorated(test: _Test) -> _Test:
        @functools.wraps(test)
        def run(self: Any, *args: Any, **named: Any) -> None:
            if getattr(self.can, ability):
                return test(self, *args, **named)
            try:
                test(self, *args, **named)
            except Unsupported:  # of another ability that the test asks for
                raise
            except (Exception, pytest.fail.Exception):
                return None
            pytest.fail(f"{_you_say(self.can, ability)}; and the driver does it")

        return run  # type: ignore[return-value]

    return decorated


def _does(can: Abilities, ability: str, test: Callable[[], None]) -> None:
    try:
        test()
    except Unsupported as refused:
        pytest.fail(f"{_you_say(can, ability)}; and the driver refuses: {refused}")


def _refuses(can: Abilities, ability: str, test: Callable[[], None]) -> None:
    try:
        test()
    except Unsupported as refused:
        return _need_remedy(refused)
    except Exception as error:
        error.add_note(f"{_you_say(can, ability)}: refuse it with Unsupported")
        raise
    pytest.fail(f"{_you_say(can, ability)}; and the driver does it")


def _need_remedy(refused: Unsupported) -> None:
    assert refused.remedy, f"{refused}: say what to do instead"


def _you_say(can: Abilities, ability: str) -> str:
    said = "yes" if getattr(can, ability) else "no"
    return f'you say {said} to {ability}, "{sentence(can, ability)}"'
