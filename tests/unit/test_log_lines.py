# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A line of the log begins with its time and its id, whatever is logged in it."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from lunshare.agent import logs, request_scope
from lunshare.drivers import request_ids

BEGINS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ [A-Z]+ test\.lines \[")
ID = "req-1"
TEXTS = (
    "lvcreate failed:\n2026-01-01 00:00:00.000 1 INFO all is well",
    "a\r\x1b[31mb",
    "a\u2028b\u2029c\x85d",
    "a\tb\0c",
)


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger with the formatter of the daemon, and what it has written."""
    conf = cfg.ConfigOpts()
    logs.register(conf)
    conf([])
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.Formatter(config=conf, datefmt=conf.log_date_format))
    logger = logging.getLogger("test.lines")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    with request_scope.scope(ID):
        yield logger, written
    logger.removeHandler(handler)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_a_text_cannot_begin_a_line(
    log: tuple[logging.Logger, io.StringIO], level: int, text: str
) -> None:
    logger, written = log
    logger.log(level, "[%s] 100%% %s", "lvm", text)
    (line,) = written.getvalue().splitlines()
    assert BEGINS.match(line)
    assert f"[- {ID} -] [lvm] 100% " in line
    assert line.isprintable()


def test_each_line_of_a_traceback_is_marked(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, written = log
    try:
        raise ValueError("a\n2026-01-01 00:00:00.000 1 INFO all is well")
    except ValueError:
        logger.exception("[%s] failed", "lvm")
    lines = written.getvalue().splitlines()
    assert len(lines) > 3
    assert all(" ERROR test.lines" in line for line in lines)


def test_a_text_of_other_scripts_stays(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.info("%s", "größe 容量")
    assert written.getvalue().endswith("größe 容量\n")


def test_a_request_has_one_id_until_it_ends() -> None:
    environ: dict[str, object] = {}
    ident = request_scope.begin(environ)
    began = environ[request_scope.BEGAN]
    assert request_scope.begin(environ) == ident == request_ids.current()
    assert environ[request_scope.BEGAN] == began
    request_scope.end()
    assert request_ids.current() == request_ids.NONE
    assert request_scope.begin({}) != ident
    request_scope.end()
