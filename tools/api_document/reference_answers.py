# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read the answers of a handler from its source: status codes and fields.

Nothing is executed. A handler and the functions of its module are followed from call
to call; of every other function the docstring's ``:raises`` lines count. What cannot be
read this way is left out, so what is found is true and may be incomplete.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, get_type_hints

from lunshare.agent.api import access_rules, faults, middleware, wsgi
from lunshare.agent.api.access import identity, origins
from lunshare.agent.api.exchange import Answer
from lunshare.agent.api.requests import actions, forms
from lunshare.agent.model import errors
from lunshare.agent.service.services import Services

_RAISES = re.compile(r":raises (\w+): ?(\d{3})?")
_API = "lunshare.agent.api."
#: Functions of other modules that are followed: they have the errors of many handlers.
_FOLLOWED = (faults.no_such_path, wsgi._body, actions.run)


@dataclass(frozen=True, slots=True)
class Source:
    """A function, and the expressions that a caller passed as its arguments."""

    function: Callable[..., Any]
    arguments: Mapping[str, tuple[ast.expr, Source]] = field(default_factory=dict)

    @property
    def tree(self) -> ast.AST:
        """Return its syntax tree."""
        return _parse(self.function)

    def named(self, node: ast.expr) -> Any:
        """Return the module, function, class or value that a name means, or None."""
        match node:
            case ast.Name(name) if name in self.arguments:
                passed, caller = self.arguments[name]
                return caller.named(passed)
            case ast.Name(name):
                return self.function.__globals__.get(name)
            case ast.Attribute(ast.Attribute(ast.Name("call"), "services"), name):
                return _services()[name]
            case ast.Attribute(ast.Name("call"), "body"):
                return wsgi._body
            case ast.Attribute(value, name):
                return getattr(self.named(value), name, None)
        return None

    def called(self, call: ast.Call) -> Source | None:
        """Return the function of a call with its arguments, if it is known."""
        function = _plain(self.named(call.func))
        if function is None:
            return None
        names = list(inspect.signature(function).parameters)
        passed = dict(zip(names, call.args, strict=False))
        passed |= {each.arg: each.value for each in call.keywords if each.arg}
        return Source(function, {name: (node, self) for name, node in passed.items()})


def _plain(found: Any) -> Callable[..., Any] | None:
    """Return the function behind a method or a cache; None if it is not a function."""
    if found is None or isinstance(found, type):
        return None
    function = inspect.unwrap(getattr(found, "__func__", found))
    return function if inspect.isfunction(function) else None


@functools.cache
def _services() -> Mapping[str, Any]:
    return get_type_hints(Services)


@functools.cache
def _parse(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def successes(handler: Callable[..., Any]) -> set[int]:
    """Return the status codes of the answers that a handler creates."""
    return {
        status
        for call, source in _answers(Source(handler))
        for status in _numbers(call.args[0], source)
    }


def fields(handler: Callable[..., Any]) -> dict[str, list[str]]:
    """Return the fields of a handler's answer, each with the fields below it."""
    found: dict[str, list[str]] = {}
    for call, source in _answers(Source(handler)):
        for body in call.args[1:2]:
            for name, value, place in _entries(body, source):
                below = [key for key, _, _ in _entries(value, place)]
                found[name] = list(dict.fromkeys([*found.get(name, ()), *below]))
    return found


def refusals(handler: Callable[..., Any]) -> set[int]:
    """Return the status codes of errors that a handler, or what it calls, raises."""
    return set(_statuses_raised(Source(handler)))


def refusals_of_every_route() -> set[int]:
    """Return the status codes of errors that any path answers, before its handler."""
    return _refusals_of(
        middleware.Middleware.process_request,
        wsgi.Resource._answer,
        wsgi.Resource._refuse,
        origins.Origins.check,
    )


def refusals_of_identity() -> set[int]:
    """Return those of every path below /v3/, which asks who the caller is."""
    return _refusals_of(
        middleware.Middleware._enter,
        identity.Identity.context,
        access_rules.AccessRules.require,
    )


def _refusals_of(*functions: Callable[..., Any]) -> set[int]:
    return {status for each in functions for status in refusals(each)}


def _answers(source: Source) -> Iterator[tuple[ast.Call, Source]]:
    """Yield each ``Answer(...)`` of a function and of those of its module it calls."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            if source.named(node.func) is Answer:
                yield node, source
            elif (called := source.called(node)) and _is_local(called, source):
                yield from _answers(called)


def _is_local(called: Source, source: Source) -> bool:
    return called.function.__module__ == source.function.__module__


def _numbers(node: ast.expr, source: Source) -> Iterator[int]:
    match node:
        case ast.Constant(int(number)):
            yield number
        case ast.IfExp(_, one, other):
            yield from _numbers(one, source)
            yield from _numbers(other, source)
        case ast.Name(name) if name in source.arguments:
            yield from _numbers(*source.arguments[name])


def _statuses_raised(source: Source) -> Iterator[int]:
    yield from _statuses_in_docstring(source.function)
    for node in ast.walk(source.tree):
        match node:
            case ast.Call() if (called := source.called(node)) is not None:
                own = _is_local(called, source) or called.function in _FOLLOWED
                yield from (
                    _statuses_raised(called)
                    if own
                    else _statuses_in_docstring(called.function)
                )
            case ast.Call(func):
                yield from _status_of_raise(source.named(func), node, source)
            case ast.Attribute() if (found := _plain(source.named(node))) is not None:
                yield from _statuses_in_docstring(found)


def _status_of_raise(error: Any, call: ast.Call, source: Source) -> Iterator[int]:
    """Yield the status of an error that is created here."""
    if error is faults.Fault:
        yield from _numbers(call.args[0], source)
    elif isinstance(error, type) and (family := faults.family_of(error)):
        yield faults.FAMILIES[family][0]


def _statuses_in_docstring(function: Callable[..., Any]) -> Iterator[int]:
    """Yield the statuses of the errors that a docstring lists."""
    for name, number in _RAISES.findall(function.__doc__ or ""):
        if number:
            yield int(number)
        elif family := faults.family_of(getattr(errors, name, object)):
            yield faults.FAMILIES[family][0]
    if function is forms.Form.read:
        yield from refusals(wsgi._body)


Entry = tuple[str, ast.expr, Source]


def _entries(node: ast.expr, source: Source) -> Iterator[Entry]:
    """Yield keys and values of the dictionary, or list of them, that a node creates."""
    match node:
        case ast.Dict(keys, values):
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    yield from _entries(value, source)
                elif name := _text(key, source):
                    yield name, value, source
        case ast.BinOp(one, ast.BitOr(), other) | ast.IfExp(_, one, other):
            yield from _entries(one, source)
            yield from _entries(other, source)
        case ast.ListComp(item):
            yield from _entries(item, source)
        case ast.DictComp(_, _, [part]):
            yield from _chosen(part, source)
        case ast.Name(name):
            yield from _of_name(name, source)
        case ast.Call():
            yield from _returned(node, source)


def _text(node: ast.expr, source: Source) -> str:
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(parts):
            return "".join(_text(each, source) for each in parts)
        case ast.FormattedValue(value):
            return _text(value, source)
        case ast.Name(name) if name in source.arguments:
            return _text(*source.arguments[name])
    return ""


def _returned(call: ast.Call, source: Source) -> Iterator[Entry]:
    called = source.called(call)
    if called and called.function.__module__.startswith(_API):
        for node in ast.walk(called.tree):
            if isinstance(node, ast.Return) and node.value:
                yield from _entries(node.value, called)


def _of_name(name: str, source: Source) -> Iterator[Entry]:
    """Yield the entries of a variable: those it is created with, and those added."""
    if name in source.arguments:
        yield from _entries(*source.arguments[name])
    for node in ast.walk(source.tree):
        match node:
            case (
                ast.Assign([ast.Name(found)], value)
                | ast.AnnAssign(ast.Name(found), value=ast.expr() as value)
                | ast.AugAssign(ast.Name(found), value=value)
            ) if found == name:
                yield from _entries(value, source)
            case ast.Assign([ast.Subscript(ast.Name(found), key)], value) if (
                found == name and (text := _text(key, source))
            ):
                yield text, value, source
            case ast.Call(ast.Attribute(ast.Name(found), "update"), args, keywords) if (
                found == name
            ):
                for each in args:
                    yield from _entries(each, source)
                yield from ((k.arg, k.value, source) for k in keywords if k.arg)


def _chosen(part: ast.comprehension, source: Source) -> Iterator[Entry]:
    """Yield the entries that a comprehension takes from a dictionary or a table."""
    match part.iter:
        case ast.Call(ast.Attribute(taken, "items")):
            excluded = _excluded(part, source)
            found = _entries(taken, source)
            yield from (each for each in found if each[0] not in excluded)
        case ast.Name(name):
            for node in _items(name, source):
                for each in node.elts if isinstance(node, ast.Tuple) else [node]:
                    if isinstance(each, ast.Constant) and (text := _text(each, source)):
                        yield text, each, source


def _excluded(part: ast.comprehension, source: Source) -> frozenset[str]:
    for test in part.ifs:
        match test:
            case ast.Compare(_, [ast.NotIn()], [excluded]):
                return frozenset(source.named(excluded))
    return frozenset()


def _items(name: str, source: Source) -> list[ast.expr]:
    """Return the items of a tuple, which is of the function or of its module."""
    module = sys.modules[source.function.__module__]
    for tree in (source.tree, _module(module)):
        for node in ast.walk(tree):
            match node:
                case ast.Assign([ast.Name(found)], ast.Tuple(items)) | ast.AnnAssign(
                    ast.Name(found), value=ast.Tuple(items)
                ) if found == name:
                    return items
    return []


@functools.cache
def _module(module: ModuleType) -> ast.AST:
    return ast.parse(inspect.getsource(module))
