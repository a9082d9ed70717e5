# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder whose database has a million volumes, of 1,000 nodes.

The rows are copies of one attached volume, made by SQL: each with its attachment and
its metadata, on one of 1,000 hosts, in one of 1,000 projects. 100 nodes report, so that
what grows here is the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException

from tests.bench import scale_node
from tests.bench.figures import Figure, median_ms, say, timed
from tests.bench.http import Client
from tests.bench.scale_reports import ManyNodes
from tests.bench.scale_stack import POOL, Nodes, ScaleStack
from tests.fleet.stack import THIN
from tests.lab.steps import step

_NODES, _OTHERS, _CHUNK = 99, 999_000, 111_000
_BACKEND = f"node@{THIN}%23{THIN}"
_ROUNDS, _SLOW = 5, 10.0
_DIGESTS = "performance_schema.events_statements_summary_by_digest"
_REQUESTS = {
    "page of 100": "/volumes?limit=100",
    "detail page of 100": "/volumes/detail?limit=100",
    "page of 100 of all projects": "/volumes?limit=100&all_tenants=1",
    "detail page of 100 of all projects": "/volumes/detail?limit=100&all_tenants=1",
    "by name, all projects": "/volumes?limit=100&all_tenants=1&name=nothing",
    "volumes of one backend": f"/volumes?limit=100&all_tenants=1&host={_BACKEND}",
    "page of 100 with count, all projects": (
        "/volumes?limit=100&all_tenants=1&with_count=True"
    ),
    "summary of all projects": "/volumes/summary?all_tenants=1",
    "list of services": "/os-services",
    "quota of a project": "/os-quota-sets/default?usage=True",
}


def figures(stack: ScaleStack, nodes: Nodes, keep: Callable[[Figure], None]) -> None:
    """All figures of this part, each given to ``keep``."""
    client = stack.client()
    first = scale_node.attached(stack, client)
    scale_node.fill(stack, first, scale_node.VOLUMES - 1)
    scale_node.restart(stack)
    many = ManyNodes(stack, nodes)
    for figure in many.grow(_NODES):
        say(figure)  # these are kept by the part "reports"
    for where in (scale_node.VOLUMES, _OTHERS + scale_node.VOLUMES):
        if where > scale_node.VOLUMES:
            _fill(stack, first)
        rows = f"{where:,} volumes"
        name = "start of a cinder-volume"
        for figure in _worst(stack, name, rows, lambda: scale_node.restart(stack), "s"):
            keep(figure)
        for figure in _answers(stack, rows):
            keep(figure)
        stack.sql(f"TRUNCATE TABLE {_DIGESTS}")
        for figure in (*many.decisions(), *many.storm()):
            name = figure.name.rpartition(", ")[0]
            keep(Figure(f"{name}, {rows}", figure.value, figure.unit))
        most, text = _most_rows(stack)
        keep(Figure(f"a create: rows of its worst statement, {rows}", most, ""))
        print(f"    {text}", flush=True)


def _answers(stack: ScaleStack, where: str) -> Iterator[Figure]:
    client = Client(stack.port)
    for name, path in _REQUESTS.items():
        client.fresh()
        try:
            yield from _worst(stack, name, where, partial(_times, client, path))
        except (OSError, RuntimeError, HTTPException) as error:
            print(f"  {name}, {where}: {error!r}"[:150], flush=True)
            client.close()
    client.close()


def _times(client: Client, path: str) -> float:
    """The median of some answers, in milliseconds; of one that is slow."""
    first = timed(lambda: client.fetch(path))
    if first > _SLOW:
        return first * 1000
    return median_ms(timed(lambda: client.fetch(path)) for _ in range(_ROUNDS))


def _worst(
    stack: ScaleStack,
    name: str,
    where: str,
    work: Callable[[], float],
    unit: str = "ms",
) -> Iterator[Figure]:
    """Measure, and look which statement has read most rows at once."""
    stack.sql(f"TRUNCATE TABLE {_DIGESTS}")
    yield Figure(f"{name}, {where}", work(), unit)
    rows, text = _most_rows(stack)
    yield Figure(f"{name}: rows of its worst statement, {where}", rows, "")
    print(f"    {text}", flush=True)


def _most_rows(stack: ScaleStack) -> tuple[float, str]:
    """The statement that has read most rows at once: how many, and which."""
    each = "SUM_ROWS_EXAMINED / COUNT_STAR"
    text = "RIGHT(DIGEST_TEXT, 400)"
    where = "SCHEMA_NAME = 'cinder' AND DIGEST_TEXT NOT LIKE '%digest%'"
    ((rows, milliseconds, found),) = stack.sql(
        f"SELECT {each}, SUM_TIMER_WAIT / COUNT_STAR / 1e9, {text} FROM {_DIGESTS}"
        f" WHERE {where} ORDER BY {each} DESC LIMIT 1"
    )
    return float(rows), f"{float(milliseconds):.1f} ms: ...{found}"


def _fill(stack: ScaleStack, first: str) -> None:
    """Copy a volume and what belongs to it, to every fake node."""
    with step(f"insert {_OTHERS:,} volumes"):
        for begin in range(0, _OTHERS, _CHUNK):
            for table in _TABLES:
                stack.sql(_copies(stack, table, first, begin))
        stack.sql("ANALYZE TABLE volumes, volume_attachment, volume_admin_metadata")


_NUMBERS = f"(SELECT seq AS n FROM seq_0_to_{_OTHERS - 1})"
_SERVICES = (
    "(SELECT host, uuid, ROW_NUMBER() OVER (ORDER BY host) - 1 AS number"
    f" FROM services WHERE host LIKE '%@{POOL}' AND deleted = 0)"
)


def _uuid(salt: str) -> str:
    digest = f"MD5(CONCAT('{salt}', n))"
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    cut = ", ".join(f"SUBSTRING({digest}, {at}, {size})" for at, size in parts)
    return f"CONCAT_WS('-', {cut})"


_VOLUME = _uuid("volume")
#: Of each table: the column of the volume's id, and what is not copied.
_TABLES = {
    "volumes": (
        "id",
        {
            "id": _VOLUME,
            "host": f"CONCAT('node-', LPAD(n DIV 1000, 4, '0'), '@{POOL}#{POOL}')",
            "service_uuid": "service.uuid",
            "project_id": "CONCAT('project-', n MOD 1000)",
            "display_name": "CONCAT('volume ', n)",
            "created_at": "old.created_at - INTERVAL n SECOND",
        },
    ),
    "volume_attachment": ("volume_id", {"id": _uuid("host"), "volume_id": _VOLUME}),
    "volume_admin_metadata": ("volume_id", {"id": "NULL", "volume_id": _VOLUME}),
}


def _copies(stack: ScaleStack, table: str, first: str, begin: int) -> str:
    """The INSERT of one chunk."""
    key, changed = _TABLES[table]
    listed = "SELECT COLUMN_NAME FROM information_schema.COLUMNS"
    listed += f" WHERE TABLE_SCHEMA = 'cinder' AND TABLE_NAME = '{table}'"
    columns = [name for (name,) in stack.sql(listed)]
    values = (changed.get(name, f"old.`{name}`") for name in columns)
    return (
        f"INSERT INTO {table} (`{'`, `'.join(columns)}`) SELECT {', '.join(values)}"
        f" FROM {table} AS old JOIN {_NUMBERS} AS numbers"
        f" JOIN {_SERVICES} AS service ON service.number = n MOD {_NODES}"
        f" WHERE old.{key} = '{first}' AND old.deleted = 0"
        f" AND n >= {begin} AND n < {begin + _CHUNK}"
    )
