# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Decorators that compare what a driver's ABILITIES claim with what the driver does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from lunshare.drivers.abilities import Abilities, sentence
from lunshare.drivers.errors import Unsupported

_Test = TypeVar("_Test", bound=Callable[..., None])


def requires(*abilities: str) -> Callable[[_Test], _Test]:
    """Mark a behaviour that a driver offers only with these abilities.

    If the driver does not have one of them, the behaviour is run all the same, and
    the driver must refuse it with Unsupported.
    """

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        def run(self: Any, *args: Any, **named: Any) -> None:
            missing = [each for each in abilities if not getattr(self.can, each)]
            if missing:
                self.not_offered(missing[0])
                _must_refuse(self.can, missing[0], lambda: test(self, *args, **named))
            else:
                _must_do(self.can, abilities[0], lambda: test(self, *args, **named))

        return run  # type: ignore[return-value]

    return decorate


def enforced_by(ability: str) -> Callable[[_Test], _Test]:
    """Mark a behaviour that a driver enforces only with this ability.

    A driver without the ability has no call that it could refuse. The behaviour must
    fail then: a driver that passes it has the ability and must claim it.
    """

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        def run(self: Any, *args: Any, **named: Any) -> None:
            if getattr(self.can, ability):
                return test(self, *args, **named)
            self.not_offered(ability)
            try:
                test(self, *args, **named)
            except Unsupported:  # from ``requires`` of another ability
                raise
            except (Exception, pytest.fail.Exception):
                return None
            pytest.fail(f"{_claim(self.can, ability)}, but the driver does it")

        return run  # type: ignore[return-value]

    return decorate


def _must_do(can: Abilities, ability: str, test: Callable[[], None]) -> None:
    try:
        test()
    except Unsupported as refused:
        pytest.fail(f"{_claim(can, ability)}, but the driver refuses: {refused}")


def _must_refuse(can: Abilities, ability: str, test: Callable[[], None]) -> None:
    try:
        test()
    except Unsupported as refused:
        return _must_name_remedy(refused)
    except Exception as error:
        error.add_note(f"{_claim(can, ability)}: the driver must raise Unsupported")
        raise
    pytest.fail(f"{_claim(can, ability)}, but the driver does it")


def _must_name_remedy(refused: Unsupported) -> None:
    assert refused.remedy, f"{refused}: the error must name a remedy"


def _claim(can: Abilities, ability: str) -> str:
    value = getattr(can, ability)
    return f'ABILITIES claims {ability}={value} ("{sentence(can, ability)}")'
