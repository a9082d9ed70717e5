# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command: random requests made from the OpenAPI document, to a real daemon."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from lunshare.agent.api import microversions
from tests.api import documented
from tests.api.clients import daemon
from tests.stands.callers import STRATEGIES

ROOT = Path(__file__).resolve().parents[2]
LATEST = microversions.text(microversions.MAX)
#: A valid request may be refused: for a status, a quota, a name that exists already.
#: Every request has the header of the microversion: without it, it has another one.
NOT_CHECKED = ("positive_data_acceptance", "missing_required_header")

_SETTINGS = """
request-timeout = 240
suppress-health-check = ["all"]
[generation]
with-security-parameters = false
"""
_ACTIONS = ("--include-path-regex", "/action$")


def main(argv: list[str]) -> int:
    """Run schemathesis; 1 when an answer was not as the document says."""
    asked = _parser().parse_args(argv)
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    print(f"openapi: seed {seed}, {asked.seconds} s, {asked.auth}, {asked.version}")
    with tempfile.TemporaryDirectory(prefix="lunshare-openapi-") as folder:
        path = Path(folder)
        with (
            STRATEGIES[asked.auth](path) as caller,
            daemon(path, ["gold", "silver"], caller.options) as endpoint,
        ):
            version = f"volume {asked.version}"
            words = [*_document(path, endpoint, asked.version), "--seed", str(seed)]
            words += ["--exclude-checks", ",".join(_not_checked(asked.auth))]
            (path / "schemathesis.toml").write_text(_settings(caller.headers))
            known = {
                "LUNSHARE_ENDPOINT": endpoint,
                "LUNSHARE_PROJECT": caller.project,
                "LUNSHARE_HEADERS": json.dumps({microversions.HEADER: version}),
                "LUNSHARE_PROOF": json.dumps(caller.headers),
            }
            failed = [
                _schemathesis(path, known, [*words, *more])
                for more in _parts(asked.seconds)
            ]
        crashed = [each for each in _lines(path / "lunshared.log") if "CRASHED" in each]
    print("\n".join(crashed))
    if any(failed) or crashed:
        print(f"FAILED: seed {seed}, {asked.auth}, {asked.version}")
    return 1 if any(failed) or crashed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests/openapi/run", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long")
    parser.add_argument("--seed", type=int, help="of all chances; default: a new one")
    parser.add_argument(
        "--auth", choices=STRATEGIES, default="noauth", help="who calls"
    )
    parser.add_argument("--version", default=LATEST, help="the microversion")
    return parser


def _parts(seconds: int) -> list[list[str]]:
    """The options of each run: everything, then once more the actions.

    The body of an action is one of many, so a run of everything tries few of them.
    """
    actions = max(1, seconds // 4)
    return [
        ["--max-time", str(max(1, seconds - actions))],
        ["--max-time", str(actions), "--phases", "fuzzing", *_ACTIONS],
    ]


def _document(path: Path, endpoint: str, version: str) -> list[str]:
    """The document that the daemon serves, or that of a lower microversion."""
    base = endpoint.removesuffix("/v3")
    if version == LATEST:
        return [f"{base}/openapi.json"]
    file = path / "openapi.json"
    file.write_text(json.dumps(documented.at(version)))
    return [str(file), "--url", base]


def _not_checked(strategy: str) -> tuple[str, ...]:
    """The checks that this daemon cannot pass; with noauth no proof is asked for."""
    return (*NOT_CHECKED, "ignored_auth") if strategy == "noauth" else NOT_CHECKED


def _settings(proof: Mapping[str, str]) -> str:
    """The file of settings: the proof, and patience on a busy machine.

    Schemathesis itself must know the proof: it asks without it, and with a wrong one.
    """
    lines = [f"{json.dumps(name)} = {json.dumps(text)}" for name, text in proof.items()]
    return _SETTINGS + "\n".join(["[headers]", *lines, ""])


def _schemathesis(path: Path, known: Mapping[str, str], words: list[str]) -> bool:
    """Run it in the folder, where it may leave files; whether it found something."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", *words]
    command += ["--continue-on-failure"]
    command += ["--warnings", "off", "--generation-database", "none"]
    env = {
        **os.environ,
        **known,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "SCHEMATHESIS_HOOKS": "tests.openapi.hooks",
    }
    answers = path / "answers.json"
    answers.unlink(missing_ok=True)
    done = subprocess.run(command, cwd=path, env=env, check=False)
    if answers.exists():  # not if it could not start, which it says itself
        print(_summary(json.loads(answers.read_text())), flush=True)
    return done.returncode != 0


def _summary(answers: Mapping[str, Mapping[str, int]]) -> str:
    """How often each status came, and the operations that never succeeded."""
    counts: Counter[str] = Counter()
    for found in answers.values():
        counts.update(found)
    shown = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
    never = [name for name, found in answers.items() if min(found) >= "400"]
    return f"answers {shown}\nnever a success: {', '.join(never) or 'none'}"


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
