# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print docs/api-reference.md: ``make api-reference``.

It is written from what the daemon uses itself, routes, forms and docstrings, and from
the schemas of answers (tools.api_document.answer_table).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from lunshare.agent.api import faults, microversions, missing_features
from lunshare.agent.api.exchange import Handler
from lunshare.agent.api.handlers import snapshot_actions, volume_actions
from lunshare.agent.api.microversions import MAX, MIN, text
from lunshare.agent.api.requests import metadata_schemas, operator_schemas, schemas
from lunshare.agent.api.requests.actions import Action
from lunshare.agent.api.requests.forms import Form
from lunshare.agent.api.routes import REFUSED, REFUSED_IDENTITY, ROUTES, Route
from lunshare.agent.model.page_rows import PAGE_BYTES
from tools.api_document.answer_parts import EXTENSION, Schema
from tools.api_document.answer_table import BODIES

_SCHEMAS = (schemas, metadata_schemas, operator_schemas)
_TABLES: Mapping[Handler, Mapping[str, Action]] = {
    volume_actions.action: volume_actions.ACTIONS,
    snapshot_actions.action: snapshot_actions.ACTIONS,
}

_HEAD = f"""\
# HTTP API reference

Generated from routes, schemas and handlers by `make api-reference`; do not edit it.

The API is the Block Storage API v3, microversions {text(MIN)} to {text(MAX)}
(header `{microversions.HEADER}: volume X.Y`, without it {text(MIN)}). Answers have the
fields of <https://docs.openstack.org/api-ref/block-storage/v3/>. A project may follow
`/v3`, as in `/v3/PROJECT/volumes`. *Since* is the first microversion of a route or a
field; before it a route does not exist (404) and a field is unknown. From
{text(microversions.STRICT_BODIES)} on an unknown field is refused.

A page of a list has at most `limit` rows (`osapi_max_limit` without one), and ends at
{PAGE_BYTES // 2**20} MiB. `volumes_links` and the like then have the link `next`.

Lists take `limit`, `marker`, `offset`, `sort`, `sort_key`, `sort_dir`, `all_tenants`,
`with_count` (since {text(microversions.LIST_COUNT)}) and filters by field:
`status=error`, `name~=part` (since {text(microversions.LIKE_FILTERS)}),
`created_at=gt:2026-01-31T12:00:00` (since {text(microversions.TIME_FILTERS)}).

*Status* is that of a success. *Refused* are the statuses of the errors that the handler
raises. Every route below `/v3/` can also answer EVERY, which come
before its handler runs;
409 while another operation has the resource; 500 and 503 if storage or database fail.

A field of an answer has its first microversion behind it, if that is not the route's.
"""

_MISSING = """\
Parts of the Block Storage API that this node does not have. Each answer names what is
missing. A path includes all paths below it.
"""

_ERRORS = f"""\
## Errors

The body of an error is `{{"KEY": {{"code": STATUS, "message": "SENTENCE"}}}}`. A status
that is not in this table has the key `{faults.OTHER_KEY}`.

| status | key | what it means |
|---|---|---|
"""


def page() -> str:
    """Return the page."""
    groups: dict[ModuleType, list[Route]] = {}
    for route in ROUTES:
        groups.setdefault(_module(route.handler), []).append(route)
    sections = [_section(module, routes) for module, routes in groups.items()]
    head = _HEAD.replace("EVERY", _codes(REFUSED | REFUSED_IDENTITY))
    missing = ["## Missing features", "", _MISSING, *_missing_lines(), ""]
    errors = _ERRORS + "".join(_error_lines())
    return "\n".join([head, errors, *missing, *sections])


def forms(handler: Handler) -> list[Form]:
    """Return the forms that a handler names: those of the body it reads."""
    names = handler.__code__.co_names
    named = (getattr(of, name, None) for name in names for of in _SCHEMAS)
    return [form for form in named if isinstance(form, Form)]


def _module(handler: Handler) -> ModuleType:
    return sys.modules[handler.__module__]


def _error_lines() -> Iterator[str]:
    for status, key in sorted((faults.KEYS | {500: faults.OTHER_KEY}).items()):
        means = [
            (error.__doc__ or "").partition("\n")[0]
            for error, (code, _) in faults.FAMILIES.items()
            if code == status
        ]
        yield f"| {status} | `{key}` | {' Or: '.join(means)} |\n"


def _missing_lines() -> Iterator[str]:
    yield from ["| missing | status | answer |", "|---|---|---|"]
    for form, status, features in (
        ("`{}`", 404, missing_features.PATHS),
        ("action `{}` of a volume", 400, missing_features.ACTIONS),
        ("field `{}` of a new volume", 400, missing_features.FIELDS),
    ):
        for name, feature in features.items():
            yield f"| {form.format(name)} | {status} | {feature.sentence} |"


def _section(module: ModuleType, routes: list[Route]) -> str:
    title = module.__name__.rpartition(".")[2].replace("_", " ").capitalize()
    lines = [f"## {title}", "", (module.__doc__ or "").partition("\n")[0], ""]
    lines += ["| route | since | status | refused | what it does |"]
    lines += ["|---|---|---|---|---|"]
    lines += [_route_line(route) for route in routes]
    lines += _answers(routes)
    for route in routes:
        lines += _bodies(route)
    return "\n".join(lines) + "\n"


def _route_line(route: Route) -> str:
    what = (route.handler.__doc__ or "").partition("\n")[0].partition(": ")[2]
    since = text(route.since) if route.path.startswith("/v3/") else ""
    status, refused = statuses(route)
    return (
        f"| `{route.method} {route.path}` | {since} | {_codes(status)}"
        f" | {_codes(refused)} | {what} |"
    )


def statuses(route: Route) -> tuple[set[int], set[int]]:
    """Return the statuses of successes, and of the errors that handlers raise."""
    status, refused = set(route.answers), set(route.refused)
    for action in actions(route).values():
        status.add(action.status)
        refused.update(action.refused)
    return status, refused


def actions(route: Route) -> Mapping[str, Action]:
    """Return the actions of a route by their names; empty if it has none."""
    return _TABLES.get(route.handler, {})


def _codes(codes: Iterable[int]) -> str:
    return ", ".join(str(code) for code in sorted(codes))


def _answers(routes: list[Route]) -> Iterator[str]:
    """Yield a table of the fields of answers. Routes with the same share a line."""
    table: dict[tuple[str, str], list[str]] = {}
    for route in routes:
        line = f"`{route.method} {route.path}`"
        bodies = {line: BODIES.get(route.handler, {})}
        for name, action in actions(route).items():
            bodies[f"action `{name}`"] = BODIES.get(action.run, {})
        for answer, body in bodies.items():
            for field, schema in body.get("properties", {}).items():
                key = _field(field, schema), _fields_below(schema)
                table.setdefault(key, []).append(answer)
    if table:
        yield from ["", "| field of the answer | of | its fields |", "|---|---|---|"]
    for (field, below), answers in table.items():
        yield f"| {field} | {', '.join(answers)} | {below} |"


def _fields_below(schema: Schema) -> str:
    """Return the fields of an object, or of each object in a list."""
    properties = schema.get("items", schema).get("properties", {})
    return ", ".join(_field(name, below) for name, below in properties.items())


def _field(name: str, schema: Schema) -> str:
    version = schema.get(EXTENSION, {}).get("min-ver")
    return f"`{name}` ({version})" if version else f"`{name}`"


def _bodies(route: Route) -> Iterator[str]:
    """Yield the lines about the bodies that a route takes."""
    if route.handler in _TABLES:
        for name, action in _TABLES[route.handler].items():
            refused = _codes(action.refused)
            since = text(action.since)
            yield from [
                "",
                f"Body of action `{name}` (since {since}; refused {refused}):",
            ]
            yield from _fields(action.form)
    else:
        for form in forms(route.handler):
            yield from ["", f"Body of `{route.method} {route.path}`:"]
            yield from _fields(form)


def _fields(form: Form) -> Iterator[str]:
    """Yield a table of the fields of a form, each with its first microversion."""
    yield from ["", "| field | required | since | value |", "|---|---|---|---|"]
    rows: dict[str, str] = {}
    for since in sorted(form.schemas):
        for path, required, schema in _flat(form.schemas[since], ""):
            first = rows[path].split(" | ")[2] if path in rows else text(since)
            needed = "yes" if required else ""
            rows[path] = f"| `{path}` | {needed} | {first} | {_value(schema)} |"
    yield from rows.values()
    if not rows:
        yield f"| (any key) | | {text(min(form.schemas))} | a text |"


def _flat(schema: Any, path: str) -> Iterator[tuple[str, bool, Any]]:
    """Yield path, whether it is required, and schema of each field below."""
    inner = schema.get("then", schema)
    for name, field in inner.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, name in inner.get("required", ()), field
        yield from _flat(field, here)


def _value(schema: Any) -> Any:
    kinds = schema.get("type", "")
    nullable = isinstance(kinds, list) and "null" in kinds
    shown = str(schema["description"]) + (", or null" if nullable else "")
    return schema.get("$comment", shown)


if __name__ == "__main__":
    print(page(), end="")
