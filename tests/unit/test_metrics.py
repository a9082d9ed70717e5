# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The figures for Prometheus: right, bounded, and as cheap with many volumes."""

from __future__ import annotations

import itertools
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from lunshare.agent import boot_clock
from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import BackendFailed, DatabaseFailed
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.model.records import Mode, NewVolume, Volume
from lunshare.agent.service.metrics.helper_usage import HelperUsage
from lunshare.agent.service.metrics.recorded import Metrics, Recorded
from lunshare.agent.timers import Timer
from lunshare.drivers.errors import CommandFailed, TargetFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.helper_client import Helper
from tests import counted_rows
from tests.api.calls import Api
from tests.stands.node import CTX, Node, attach, connector, node_fixture
from tests.stands.waiting import until
from tests.unit.helper_process import HelperProcess

ROOT = Path(__file__).resolve().parents[2]
UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}")


node = node_fixture(forget_storage=True, backends="one,two", section="fake_wipe = true")


@pytest.fixture
def api(node: Node) -> Api:
    return Api(node.assembly.app)


def page(node: Node) -> str:
    return node.services.metrics.page().decode()


def value(node: Node, name: str, **labels: str) -> float | None:
    """One sample of the page, or None."""
    for family in text_string_to_metric_families(page(node)):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None


def test_leases_are_counted_while_they_run_and_when_they_end(
    node: Node, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = attach(node, shared(node, api), "alpha", "ro")
    counts = ("lunshare_leases", "lunshare_lease_ends_total")
    assert [value(node, name) for name in counts] == [0, 0]
    node.services.mode_changes.change(CTX, row.id, Mode.RW, lease=NewLease(30))
    assert [value(node, name) for name in counts] == [1, 0]
    later = boot_clock.seconds() + 31
    monkeypatch.setattr(boot_clock, "seconds", lambda: later)
    node.services.leases.end_due()
    until(lambda: value(node, "lunshare_lease_ends_total") == 1)
    assert [value(node, name) for name in counts] == [0, 1]


def shared(node: Node, api: Api) -> Volume:
    return node.services.volumes.get(CTX, api.shared_volume()["id"])


def totals_are_right(node: Node) -> bool:
    with node.assembly.database.reading() as connection:
        return counted_rows.totals_are_right(connection)


# what is counted


def test_requests_are_counted_by_route_and_code_and_not_by_path(
    node: Node, api: Api
) -> None:
    volume = api.volume()
    route = "/v3/volumes/{id}"
    api("GET", f"/volumes/{volume['id']}")
    for name in ("a", "b", "c"):
        api.fault(404, "GET", f"/volumes/{name}")
        api.fault(404, "GET", f"/nothing-of-the-kind/{name}")
    counted = "lunshare_http_requests_total"
    assert value(node, counted, method="GET", route=route, code="200") == 1
    assert value(node, counted, method="GET", route=route, code="404") == 3
    assert value(node, counted, method="GET", route="none", code="404") == 3
    timed = "lunshare_http_request_duration_seconds_count"
    assert value(node, timed, method="GET", route=route) == 4
    assert "/v3/nothing" not in page(node)


def test_an_unknown_method_is_not_a_label() -> None:
    recorded = Recorded()
    recorded.request("BREW", "none", 405, 0.1)
    recorded.request("GET", "none", 404, 0.1)
    labels = {
        sample.labels["method"]
        for family in recorded.registry.collect()
        for sample in family.samples
        if "method" in sample.labels
    }
    assert labels == {"other", "GET"}


def test_an_attach_and_a_detach_are_timed_and_their_failures_counted(
    node: Node, api: Api
) -> None:
    volume = shared(node, api)
    at = {"backend": volume.backend}
    first = attach(node, volume, "h1")
    with (
        node.target(volume.backend).failures.fail(
            "apply.opened", TargetFailed("v", "x")
        ),
        pytest.raises(BackendFailed),
    ):
        attach(node, volume, "h2")
    assert value(node, "lunshare_attach_duration_seconds_count", **at) == 2
    assert value(node, "lunshare_attach_failures_total", **at) == 1
    assert value(node, "lunshare_detach_failures_total", **at) == 0
    before = value(node, "lunshare_detach_duration_seconds_count", **at)
    assert before is not None
    node.services.attachments.delete(CTX, first.id)
    assert value(node, "lunshare_detach_duration_seconds_count", **at) == before + 1
    (other,) = {"one", "two"} - {volume.backend}
    assert value(node, "lunshare_attach_duration_seconds_count", backend=other) == 0


def test_jobs_in_progress_and_their_failures_are_shown(node: Node) -> None:
    gate, inside = threading.Event(), threading.Event()

    def step(ident: str) -> None:
        inside.set()
        assert gate.wait(20)
        raise CommandFailed(("x",), 1, "")

    job = node.assembly.jobs.submit(step, "a", "one")
    assert inside.wait(20)
    assert value(node, "lunshare_jobs", backend="one", state="running") == 1
    assert value(node, "lunshare_jobs", backend="two", state="running") == 0
    gate.set()
    assert isinstance(job.exception(20), CommandFailed)
    assert value(node, "lunshare_jobs", backend="one", state="running") == 0
    of = {"backend": "one", "step": "step"}
    assert value(node, "lunshare_job_failures_total", **of) == 1
    assert value(node, "lunshare_job_duration_seconds_count", **of) == 1


def test_a_failed_timer_is_counted_from_zero(node: Node) -> None:
    name, task = "lunshare_background_failures_total", "purge"
    for each in (task, "reconcile", "stats", "database", "answers", "wipe"):
        assert value(node, name, task=each) == 0
    done = threading.Event()

    def broken() -> None:
        done.set()
        raise RuntimeError("because of the test")

    recorded = node.services.recorded
    timer = Timer(task, 3600, broken, recorded.task_failed)
    timer.start()
    timer.wake()
    assert done.wait(20)
    timer.stop()
    assert value(node, name, task=task) == 1


def test_a_reconcile_leaves_its_time_and_what_it_changed(node: Node, api: Api) -> None:
    last = "lunshare_reconcile_last_success_timestamp_seconds"
    before = value(node, last)
    volume = shared(node, api)
    attach(node, volume, "h1")
    node.target(volume.backend).remove(volume.id)  # another program
    result = node.assembly.reconcile.run()
    after = value(node, last)
    assert before is not None
    assert after is not None
    assert after > before > 1e9
    assert value(node, "lunshare_reconcile_drift_total", kind="changed") == len(
        result.changed
    )
    assert result.changed
    assert value(node, "lunshare_reconcile_problems", kind="failed") == 0


def write_a_large_row(database: Database) -> None:
    with database.writing() as connection:
        large = {"host": "x" * 100_000, "binary": "b", "disabled": False}
        connection.execute(sa.insert(SERVICES).values(large))


def test_writes_that_fail_are_counted(node: Node) -> None:
    assert value(node, "lunshare_database_write_failures_total") == 0
    assert value(node, "lunshare_database_writable") == 1
    database = node.assembly.database

    with database.writing() as connection:
        full = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={full}")
    with pytest.raises(DatabaseFailed, match="full"):
        write_a_large_row(database)
    assert value(node, "lunshare_database_write_failures_total") == 1
    assert value(node, "lunshare_database_writable") == 0


# what is so


def test_pools_wipes_and_backends_are_those_of_the_last_check(node: Node) -> None:
    volume = node.plain_volume(3)
    gib = 1024**3
    node.services.node.refresh()
    at = {"backend": volume.backend}
    assert value(node, "lunshare_pool_capacity_bytes", **at) == 1000 * gib
    assert value(node, "lunshare_pool_provisioned_bytes", **at) == 3 * gib
    assert value(node, "lunshare_pool_closed", **at) == 0
    assert value(node, "lunshare_backend_up", **at) == 1
    node.services.volumes.delete(CTX, volume.id)
    until(lambda: not node.driver(volume.backend).disks())
    node.services.node.refresh()
    assert value(node, "lunshare_wipes", **at) == 1
    assert value(node, "lunshare_wipe_left_bytes", **at) == 3 * gib
    assert value(node, "lunshare_ready") == 1


def test_totals_by_status_follow_the_rows(node: Node, api: Api) -> None:
    volume = api.shared_volume()
    at = {"backend": node.services.volumes.get(CTX, volume["id"]).backend}
    assert value(node, "lunshare_volumes", status="available", **at) == 1
    assert value(node, "lunshare_volumes", status="error_deleting", **at) == 0
    made = [
        api.attachment(volume["id"], connector=connector(host), mode=mode)
        for host, mode in (("h1", "ro"), ("h2", "ro"), ("h3", "rw"))
    ]
    state = {"state": "attaching"}
    assert value(node, "lunshare_attachments", mode="ro", **state) == 2
    assert value(node, "lunshare_attachments", mode="rw", **state) == 1
    api.complete(made[0]["id"])
    assert value(node, "lunshare_attachments", mode="ro", state="attached") == 1
    assert value(node, "lunshare_attachments", mode="ro", **state) == 1
    for each in made:
        api("DELETE", f"/attachments/{each['id']}")
    assert value(node, "lunshare_attachments", mode="ro", state="attached") == 0
    api("DELETE", f"/volumes/{volume['id']}", status=202)
    api.gone(f"/volumes/{volume['id']}")
    assert value(node, "lunshare_volumes", status="available", **at) == 0
    assert totals_are_right(node)


def test_totals_follow_a_migration_to_another_backend(node: Node) -> None:
    volume = node.plain_volume()
    (other,) = {"one", "two"} - {volume.backend}
    target = node.services.node.host_of(other)
    node.services.migrator.migrate(CTX, volume.id, target)
    until(lambda: node.services.volumes.get(CTX, volume.id).backend == other)
    until(lambda: totals_are_right(node))
    assert value(node, "lunshare_volumes", backend=other, status="available") == 1
    assert (
        value(node, "lunshare_volumes", backend=volume.backend, status="available") == 0
    )


# cost


def steps_of_a_scrape(node: Node) -> int:
    """The steps of SQLite's machine that a scrape takes."""
    steps = itertools.count()
    with node.assembly.database.reading() as connection:
        driver: Any = connection.connection.dbapi_connection

    def count() -> None:
        next(steps)

    driver.set_progress_handler(count, 1)
    try:
        node.services.metrics.page()
    finally:
        driver.set_progress_handler(None, 0)
    return next(steps)


def rows(node: Node, count: int) -> None:
    """So many more volumes with two attachments each, as copies of the first."""
    with node.assembly.database.writing() as connection:
        for table, times in (("volumes", 1), ("volume_attachment", 2)):
            names = [
                row[1]
                for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")
            ]
            listed = ", ".join(names[1:])
            for _ in range(times):
                connection.exec_driver_sql(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                    f" WHERE i < {count}) INSERT INTO {table} (id, {listed}) SELECT"
                    f" lower(hex(randomblob(16))), {listed} FROM"
                    f" (SELECT * FROM {table} LIMIT 1), n"
                )


def test_a_scrape_costs_the_same_with_10_and_with_10000_volumes(
    node: Node, api: Api
) -> None:
    attach(node, shared(node, api), "h1")
    rows(node, 10)
    few = steps_of_a_scrape(node)
    rows(node, 10_000)
    many = steps_of_a_scrape(node)
    print(f"steps of SQLite for a scrape: {few} with 11 volumes, {many} with 10,011")
    assert totals_are_right(node)
    total = sum(
        value(node, "lunshare_volumes", backend=name, status="available") or 0
        for name in ("one", "two")
    )
    assert total == 10_011
    assert 0 < many <= few + 5


def test_no_figure_has_an_id_a_project_or_a_host(node: Node, api: Api) -> None:
    volume = api.shared_volume(name="a-name")
    row = api.attachment(volume["id"], connector=connector("a-host"))
    api.complete(row["id"])
    text = page(node)
    assert not UUID.search(text)
    for word in (api.project, "a-name", "a-host", "iqn."):
        assert word not in text


def test_it_answers_while_every_backend_hangs(tmp_path: Path) -> None:
    fake_storage.reset()
    node = Node(tmp_path, extra="osapi_threads = 6", backends="one,two").start()
    gate, inside = threading.Event(), threading.Semaphore(0)

    def hang(_point: str) -> None:
        inside.release()
        assert gate.wait(30)

    for name in ("one", "two"):
        node.driver(name).failures.watch(hang)
    checks = [backend.start_check() for backend in node.assembly.backends.values()]
    assert inside.acquire(timeout=20)
    assert inside.acquire(timeout=20)
    assert value(node, "lunshare_backend_up", backend="one") is not None
    assert value(node, "lunshare_volumes", backend="two", status="available") == 0
    gate.set()
    for check in checks:
        assert check.wait(20)
    node.close()


# the helper's processes


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[HelperProcess]:
    directory = tmp_path / "helper"
    directory.mkdir(0o755)
    process = HelperProcess(directory)
    process.start("")
    yield process
    process.stop()


def helper_page(client: Helper) -> str:
    return Metrics(Recorded(), HelperUsage(client)).page().decode()


def test_what_the_helper_uses_is_collected(helper: HelperProcess) -> None:
    text = helper_page(helper.client())
    (memory,) = re.findall(r'memory_bytes\{process="helper"\} (\S+)', text)
    assert helper.process
    rss = psutil.Process(helper.process.pid).memory_info().rss
    assert float(memory) == pytest.approx(rss, rel=0.1)
    assert 'lunshare_helper_commands{state="disk-sleep"} 0.0' in text
    assert 'lunshare_memory_takers_total{what="closed"} 0.0' in text
    (limit,) = re.findall(r"hosts_memory_limit_bytes (\d\S+)", text)
    assert 0 < float(limit) <= psutil.virtual_memory().total / 4


def test_page_is_there_in_time_while_the_helper_hangs(helper: HelperProcess) -> None:
    metrics = Metrics(Recorded(), HelperUsage(helper.client()))
    assert helper.process
    helper.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        pages = [threads.submit(metrics.page) for _ in range(8)]
        assert not any(b"lunshare_helper" in each.result(10) for each in pages)
    assert time.monotonic() - began < 5
    helper.process.send_signal(signal.SIGCONT)


def test_page_without_a_helper_has_no_figures_of_it(node: Node) -> None:
    assert "lunshare_helper_memory" not in page(node)
    assert value(node, "lunshare_helper_blocked") == 0


# the page of the operators


def families(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Each metric of lunshare with its kind and its labels."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("lunshare_"):
            end = "_total" if family.type == "counter" else ""
            labels = {n for s in family.samples for n in s.labels} - {"le"}
            found[family.name + end] = (family.type, frozenset(labels))
    return found


def test_docs_list_every_metric_with_its_kind_and_labels(
    node: Node, api: Api, helper: HelperProcess
) -> None:
    volume = api.volume()
    node.services.recorded.job("one", "step", 0.1, True)
    recorded = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(lunshare_\w+)` \| (\w+) \|([^|]*)\|", recorded, re.M)
    listed = {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in rows
    }
    assert volume
    # The driver that is not thin has no data and no metadata.
    thin = {"lunshare_pool_data_used_ratio", "lunshare_pool_metadata_used_ratio"}
    found = families(helper_page(helper.client())) | families(page(node))
    found |= {name: ("gauge", frozenset({"backend"})) for name in thin}
    assert listed == found


def test_names_have_base_units() -> None:
    recorded = Recorded()
    for family in recorded.registry.collect():
        if family.name.startswith("lunshare_"):
            assert not re.search(
                "_(ms|milliseconds|minutes|gb|mb|percent)$", family.name
            )
            assert family.documentation.endswith(".")


def test_new_volume_is_counted_once_however_often_its_row_changes(node: Node) -> None:
    before = value(node, "lunshare_volumes", backend="one", status="available") or 0
    before += value(node, "lunshare_volumes", backend="two", status="available") or 0
    volume = node.services.volumes.create(CTX, NewVolume(1))
    for name in ("x", "y"):
        node.services.volumes.update(CTX, volume.id, {"name": name})
    after = value(node, "lunshare_volumes", backend="one", status="available") or 0
    after += value(node, "lunshare_volumes", backend="two", status="available") or 0
    assert after == before + 1
