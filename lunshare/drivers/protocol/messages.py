# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The messages of helper and client, each a JSON object of named fields.

A request is ``{"protocol", "call", "timeout", "request_id", "arguments"}``; the id is
that of the HTTP request or the job that caused it, and only for the log. Its answer is
``{"value"}``, or ``{"error", "fields"}`` with the code and the fields of a class of
lunshare.drivers.errors. A verb on bytes may send any number of ``{"progress"}`` before
its answer, with the bytes done; its timeout counts from the last one.

Helper and daemon can be of two versions during an upgrade. Each then reports it in one
sentence, and the helper starts nothing. Protocol 1 had ``verb`` instead of ``call`` and
no ``protocol``, and its ``fields`` were a list. So a helper of protocol 1 refuses every
later request, and the form of its answer shows its protocol. A later helper answers a
request of another protocol with its own number and with ``fields`` as a list of one
sentence, which a daemon of protocol 1 shows, too. Protocol 2 had no ``request_id``,
protocol 4 no verb ``lvm.pool``, protocol 5 no ``node.processes`` and no NoSpace from
LVM's commands, protocol 7 no ``lvm.mapped``, protocol 8 no verb of the firewall,
protocol 9 no ``firewall.observe``, protocol 10 no ``lio.compare``, protocol 12
one address in ``firewall.admit``, and protocol 13 no ``lio.host``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.drivers import errors, request_ids

#: Raise it with every change of a message that the other side must understand.
PROTOCOL = 14

_CLASSES: dict[str, type[errors.DriverError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.DriverError)
}


def request(verb: str, timeout: float, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request to call ``verb``, which may take ``timeout`` seconds."""
    return {
        "protocol": PROTOCOL,
        "call": verb,
        "timeout": timeout,
        "request_id": request_ids.current(),
        "arguments": arguments,
    }


def protocol_of(message: Mapping[str, Any]) -> int:
    """Return the protocol of a request."""
    theirs = message.get("protocol", 1)
    return theirs if type(theirs) is int else 1


def other_protocol(theirs: int) -> dict[str, Any]:
    """Return the helper's answer to a request of another protocol."""
    error = errors.HelperVersion(PROTOCOL, theirs)
    return {"protocol": PROTOCOL, "error": error.code, "fields": [str(error)]}


def helper_protocol(answer: Mapping[str, Any]) -> int:
    """Return the protocol of the helper that sent this error."""
    if isinstance(answer.get("fields"), dict):
        return PROTOCOL
    return int(answer.get("protocol", 1))


def error_answer(error: errors.DriverError) -> dict[str, Any]:
    """Return the answer for an error, with its fields by name."""
    fields = {name: getattr(error, name) for name in error.FIELDS}
    return {"error": error.code, "fields": fields or {"sentence": str(error)}}


def error_of(answer: Mapping[str, Any]) -> errors.DriverError:
    """Return the error of an answer, as the helper raised it, or HelperVersion.

    Of an answer without the known form it is a sentence.
    """
    try:
        return _error_of(answer)
    except (KeyError, TypeError, ValueError):
        return errors.DriverError(f"the root helper's error is not known: {answer}")


def _error_of(answer: Mapping[str, Any]) -> errors.DriverError:
    if (helper := helper_protocol(answer)) != PROTOCOL:
        return errors.HelperVersion(helper, PROTOCOL)
    code, fields = str(answer["error"]), dict(answer["fields"])
    kind = _CLASSES.get(code)
    if kind is None or fields.keys() != set(kind.FIELDS):
        return errors.DriverError(str(fields.get("sentence", f"{code}: {fields}")))
    # JSON has no tuples.
    return kind(
        **{n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    )
