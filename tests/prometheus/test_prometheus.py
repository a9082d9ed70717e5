# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus reads a running daemon, and evaluates the alerts that are shipped.

`tests/prometheus/run` installs Debian's package and runs this.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.api.identity_daemon import PASSWORD, Running, daemon, users
from tests.stands.servers import ROOT, free_port
from tests.stands.waiting import until

HERE = Path(__file__).parent
RULES = ROOT / "etc" / "lunshare.rules.yml"
#: Seconds for what a busy machine does in one.
BOUND = 300.0
#: As the file is shipped, but an alert need not wait for minutes.
CONFIG = """\
global: {{scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: lunshare
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
  - job_name: api
    basic_auth: {{username: prometheus, password: {password}}}
    static_configs: [{{targets: ["127.0.0.1:{api}"]}}]
"""
OPTIONS = """\
auth_strategy = http_basic
http_basic_auth_user_file = {users}
metrics_listen = 127.0.0.1:{port}
[oslo_policy]
policy_file = {policy}
"""
POLICY = '"lunshare:metrics": "role:admin or role:metrics"\n'


def promtool(*words: str | Path, given: str | None = None) -> str:
    """Run promtool, which must succeed; return its output."""
    done = subprocess.run(
        ["promtool", *map(str, words)],
        check=False,
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_alerts_are_valid() -> None:
    assert "20 rules found" in promtool("check", "rules", RULES)


def test_each_alert_fires_at_its_time(tmp_path: Path) -> None:
    cases = (HERE / "lunshare.rules.test.yml").read_text()
    file = tmp_path / "test.yml"
    file.write_text(cases.replace("[RULES]", f"[{RULES}]"))
    assert "SUCCESS" in promtool("test", "rules", file)


class Prometheus:
    """A server on a daemon's metrics_listen, and on its API with a password."""

    def __init__(self, path: Path, target: int, api: int) -> None:
        self.port = free_port()
        rules = path / "rules.yml"
        lines = RULES.read_text().splitlines()
        kept = [line for line in lines if not line.startswith("        for: ")]
        rules.write_text("\n".join(kept))
        config = path / "prometheus.yml"
        words = {"rules": rules, "port": target, "api": api, "password": PASSWORD}
        config.write_text(CONFIG.format(**words))
        self.log = path / "prometheus.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={path / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            until(self._answers, "Prometheus")
        except BaseException:
            self.end()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.get("/api/v1/targets")["activeTargets"])
        except OSError:
            return False

    def get(self, path: str) -> Any:
        """The data of an answer of its API."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=BOUND) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> float | None:
        """The value of a query with one result, or None."""
        found = self.get(f"/api/v1/query?query={quote(query)}")["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self.get("/api/v1/alerts")["alerts"]
        return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(BOUND)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("daemon")
    policy = path / "policy.yaml"
    policy.write_text(POLICY)
    file = users(path, prometheus="metrics")
    with daemon(path, OPTIONS.format(users=file, port=port, policy=policy)) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, running: Running, port: int
) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), port, running.port)
    yield made
    made.end()


def test_promtool_accepts_the_page(running: Running, port: int) -> None:
    running.unix("GET", "/v3/volumes")
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND) as answer:
        page = answer.read().decode()
    assert promtool("check", "metrics", given=page) == ""


def test_prometheus_reads_what_the_daemon_did(
    running: Running, prometheus: Prometheus
) -> None:
    made = running.unix("POST", "/v3/volumes", body={"volume": {"size": 1}})
    assert made.status == 202
    volumes = 'lunshare_volumes{backend="fake",status="available"}'
    until(lambda: prometheus.value(volumes) == 1, "one volume")
    answers = (
        'lunshare_http_requests_total{method="POST",route="/v3/volumes",code="202"}'
    )
    until(lambda: prometheus.value(answers) == 1, "one answer")
    capacity = 'lunshare_pool_capacity_bytes{backend="fake"}'
    until(lambda: prometheus.value(capacity) == 1e3 * 2**30, "the capacity")
    until(lambda: prometheus.value('up{job="lunshare"}') == 1, "up")
    assert (prometheus.value("process_resident_memory_bytes") or 0) > 1e6

    def errors() -> set[str]:
        targets = prometheus.get("/api/v1/targets")["activeTargets"]
        return {each["lastError"] for each in targets}

    until(lambda: errors() == {""}, "scrapes without an error")


def test_a_user_with_a_role_of_its_own_reads_the_page_at_the_api(
    running: Running, prometheus: Prometheus
) -> None:
    until(lambda: prometheus.value('up{job="api"}') == 1, "up")
    until(lambda: prometheus.value('lunshare_ready{job="api"}') == 1, "ready")
    assert running.basic("prometheus", "GET", "/v3/volumes").status == 403
    assert running.http("GET", "/metrics").status == 401


def test_every_rule_is_evaluated_and_a_healthy_node_has_no_alert(
    running: Running, prometheus: Prometheus
) -> None:
    def rules() -> Any:
        (group,) = prometheus.get("/api/v1/rules")["groups"]
        return group["rules"]

    until(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule")
    assert len(rules()) == 20
    until(lambda: prometheus.value("lunshare_ready") == 1, "ready")
    # A scrape that the machine was too busy for has an alert until the next one.
    until(lambda: prometheus.firing() == set(), "no alert")


def test_an_alert_fires_when_the_daemon_ends(
    running: Running, prometheus: Prometheus
) -> None:
    running.stop(BOUND)
    until(lambda: "LunshareDown" in prometheus.firing(), "LunshareDown")
