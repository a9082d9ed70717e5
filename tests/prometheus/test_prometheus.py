# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus reads a running daemon, and evaluates the alerts that are shipped.

`tests/prometheus/run` installs Debian's package and runs this.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.api.identity_daemon import Running, daemon
from tests.daemon import ROOT, free_port

HERE = Path(__file__).parent
RULES = ROOT / "etc" / "lunshare.rules.yml"
#: As the file is shipped, but an alert need not wait for minutes.
CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: lunshare
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)


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
    assert "18 rules found" in promtool("check", "rules", RULES)


def test_each_alert_comes_when_it_should_and_not_before(tmp_path: Path) -> None:
    cases = (HERE / "lunshare.rules.test.yml").read_text()
    file = tmp_path / "test.yml"
    file.write_text(cases.replace("[RULES]", f"[{RULES}]"))
    assert "SUCCESS" in promtool("test", "rules", file)


class Prometheus:
    """A server on a daemon's metrics_listen."""

    def __init__(self, path: Path, target: int) -> None:
        self.port = free_port()
        rules = path / "rules.yml"
        lines = RULES.read_text().splitlines()
        kept = [line for line in lines if not line.startswith("        for: ")]
        rules.write_text("\n".join(kept))
        config = path / "prometheus.yml"
        config.write_text(CONFIG.format(rules=rules, port=target))
        with (path / "prometheus.log").open("w") as log:
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
        until(self._answers, "Prometheus")

    def _answers(self) -> bool:
        try:
            return bool(self.get("/api/v1/targets")["activeTargets"])
        except OSError:
            return False

    def get(self, path: str) -> Any:
        """The data of an answer of its API."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
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
        self.process.wait(60)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("daemon")
    options = f"noauth_on_loopback = true\nmetrics_listen = 127.0.0.1:{port}\n"
    with daemon(path, options) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, running: Running, port: int
) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), port)
    yield made
    made.end()


def test_promtool_has_nothing_against_the_page(running: Running, port: int) -> None:
    running.unix("GET", "/v3/volumes")
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
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
    assert prometheus.value(answers) == 1
    assert (
        prometheus.value('lunshare_pool_capacity_bytes{backend="fake"}') == 1e3 * 2**30
    )
    assert prometheus.value('up{job="lunshare"}') == 1
    assert (prometheus.value("process_resident_memory_bytes") or 0) > 1e6
    (target,) = prometheus.get("/api/v1/targets")["activeTargets"]
    assert target["lastError"] == ""


def test_every_rule_is_evaluated_and_a_healthy_node_has_no_alert(
    running: Running, prometheus: Prometheus
) -> None:
    def rules() -> Any:
        (group,) = prometheus.get("/api/v1/rules")["groups"]
        return group["rules"]

    until(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule")
    assert len(rules()) == 18
    assert prometheus.value("lunshare_ready") == 1
    assert prometheus.firing() == set()


def test_an_alert_fires_when_the_daemon_ends(
    running: Running, prometheus: Prometheus
) -> None:
    running.process.terminate()
    running.process.wait(60)
    until(lambda: "LunshareDown" in prometheus.firing(), "LunshareDown")
