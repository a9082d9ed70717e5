# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The errors of drivers, as the classes that Cinder's manager expects.

The id of Cinder's request is passed on, so the helper's log has it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from oslo_context import context as oslo_context

from cinder import exception
from lunshare.drivers import errors, request_ids

_P = ParamSpec("_P")
_T = TypeVar("_T")


@contextmanager
def as_cinder() -> Iterator[None]:
    """Raise Cinder's error instead of a driver's. The sentence stays the same.

    :raises VolumeIsBusy: the disk is open, or has snapshots that need it.
    :raises ManageExistingInvalidReference: no such disk can be managed.
    :raises InvalidInput: a value is not valid; it names the field.
    :raises VolumeBackendAPIException: every other error.
    """
    request = oslo_context.get_current()
    try:
        with request_ids.scope(request.request_id if request else request_ids.NONE):
            yield
    except errors.DiskBusy as error:
        raise exception.VolumeIsBusy(str(error)) from error
    except errors.UnknownReference as error:
        raise exception.ManageExistingInvalidReference(
            existing_ref=error.reference, reason=error.why
        ) from error
    except errors.InvalidValue as error:
        raise exception.InvalidInput(reason=str(error)) from error
    except errors.DriverError as error:
        raise exception.VolumeBackendAPIException(data=str(error)) from error


def translated(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a method of the driver, so that its errors are Cinder's."""

    @functools.wraps(method)
    def call(*given: _P.args, **named: _P.kwargs) -> _T:
        with as_cinder():
            return method(*given, **named)

    return call
