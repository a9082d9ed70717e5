# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of configuration files in one sentence, which has no part of a value.

oslo.config reports what it could not read as it is, and that may be a part of a
password: what follows a ``$``, or a line without ``=``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oslo_config import cfg, iniparser

from lunshare.agent.model.errors import AgentError, StartupError
from lunshare.drivers import config_files

_UNKNOWN = (cfg.NoSuchOptError, cfg.NoSuchGroupError, RecursionError)


@contextmanager
def readable_files(conf: cfg.ConfigOpts, argv: Sequence[str]) -> Iterator[None]:
    """Read the files that a command line names.

    :raises StartupError: a file is not UTF-8, or has a line that is no option; names
        the file and the line. Or as ``known_references``.
    """
    try:
        with known_references(conf, argv):
            yield
    except cfg.ConfigFileParseError as error:
        cause = error.__context__
        if not isinstance(cause, iniparser.ParseError):
            raise
        raise StartupError(
            f"{error.config_file}, line {cause.lineno}: {_wrong_line(cause)}"
        ) from None
    except UnicodeDecodeError:
        raise StartupError(_not_utf8(argv)) from None


@contextmanager
def known_references(
    conf: cfg.ConfigOpts, argv: Sequence[str] | None = None
) -> Iterator[None]:
    """Read options. ``argv`` names the files, where ``conf`` has not read them yet.

    :raises StartupError: a ``$`` in one refers to no other option.
    """
    try:
        yield
    except (AgentError, cfg.Error, RecursionError) as error:
        paths = config_files.paths(conf) if argv is None else _paths(argv)
        is_unknown = _is_unknown(error)
        option = _option_with_unknown_reference(conf, paths) if is_unknown else None
        if option is None:
            raise
        raise StartupError(
            f"{option}: it has a $ that no name of an option follows; write $$ for the"
            " character itself"
        ) from None


def _wrong_line(error: iniparser.ParseError) -> str:
    if error.line.startswith("\ufeff"):
        return "it begins with a byte order mark: write it as UTF-8 without one"
    return str(error.msg)


def _paths(argv: Sequence[str]) -> list[str]:
    """Return the files that a command line names."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-file", action="append", default=[])
    parser.add_argument("--config-dir", action="append", default=[])
    files = parser.parse_known_args(argv)[0]
    paths = files.config_file or cfg.find_config_files("lunshare", "lunshared")
    return config_files.listed(paths, files.config_dir)


def _not_utf8(argv: Sequence[str]) -> str:
    for path in _paths(argv):
        for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"{path}, line {number}: it is not UTF-8: write it as UTF-8"
    return "a configuration file is not UTF-8: write it as UTF-8"


def _is_unknown(error: BaseException | None) -> bool:
    """Return whether an unknown option is the cause of the error."""
    while error is not None and not isinstance(error, _UNKNOWN):
        error = error.__cause__ or error.__context__
    return error is not None


def _option_with_unknown_reference(
    conf: cfg.ConfigOpts, paths: Sequence[str]
) -> str | None:
    for path in paths:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(path, sections).parse()
        for section, options in sections.items():
            for name, values in options.items():
                if not all(_is_readable(conf, section, value) for value in values):
                    return f"[{section}] {name}"
    return None


def _is_readable(conf: cfg.ConfigOpts, section: str, value: str) -> bool:
    """Return whether every reference in a value can be read."""
    group = None if section == "DEFAULT" else cfg.OptGroup(section)
    text = cfg.ConfigOpts.Template(value.replace(r"\$", "$$"))
    options: Any = conf.StrSubWrapper(conf, group=group)
    try:
        text.safe_substitute(options)
    except _UNKNOWN:
        return False
    return True
