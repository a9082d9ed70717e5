# Every target does all its own set-up. `make help` lists them.
VENV   := .venv
PYTHON := $(VENV)/bin/python
LAB    := tests/lab/run
PYTEST := $(PYTHON) -m pytest

.PHONY: help demo test test-kernels test-loopback outside check restart storm fuzz scheduler bench run states sample clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(VENV)/.ready: setup.cfg pyproject.toml Makefile
	tests/prerequisites
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable '.[test]'
	touch $@

demo: $(VENV)/.ready ## the main job on a real kernel: one volume, three hosts, two of them read-only
	tests/demo/run

check: $(VENV)/.ready ## the fast loop, under a minute: format, lint, types, imports, unit, API, conformance
	tests/check

test: check restart storm outside scheduler ## everything: check, a storm, the outside driver, a real scheduler, then the system tests on a real kernel in the lab
	tests/system/run

restart: $(VENV)/.ready ## the daemon's lives: how it starts or refuses to, killed at every step, on the fake backend
	$(PYTEST) -q -n 2 tests/restart

storm: $(VENV)/.ready ## 60 s of many clients, faults and kill -9 against a daemon, then the invariants
	$(PYTEST) -q -n 2 tests/storm
	tests/storm/run

EXAMPLES ?= 20000
fuzz: $(VENV)/.ready ## random frames, verbs and commands against the root helper; EXAMPLES=20000
	$(PYTEST) -q tests/unit/test_border_fuzz.py tests/unit/test_filters_fuzz.py --timeout 3600 --fuzz-examples $(EXAMPLES) $(if $(SEED),--fuzz-seed $(SEED))

scheduler: $(VENV)/.ready ## the real cinder-scheduler against our reports, on loopback: RabbitMQ, Cinder 29.0.0
	tests/scheduler/run

test-kernels: check ## the system tests on both supported kernels
	tests/system/run --kernel 6.1
	tests/system/run --kernel 6.12

outside: $(VENV)/.ready ## a driver in a package of its own proves itself with the kit
	tests/outside_driver/run

test-loopback: ## LVM, LIO and the outside driver on this machine's kernel, as root; else in the lab
	tests/loopback/run

bench: $(VENV)/.ready ## the figures of docs/performance.md, into build/bench.json
	tests/bench/run

run: $(VENV)/.ready ## the daemon on the fake backend, as whoever you are, on 127.0.0.1:8776
	$(VENV)/bin/lunshared --config-file etc/fake.conf --state-path build/run --listen 127.0.0.1:8776

sample: $(VENV)/.ready ## etc/lunshare.conf.sample anew from the options
	$(PYTHON) -m lunshare.agent.conf.sample >etc/lunshare.conf.sample

states: $(VENV)/.ready ## docs/states.md anew from the tables in agent/states.py
	$(PYTHON) -m lunshare.agent.states >docs/states.md

clean: ## what builds and tests left here (the lab's image cache is elsewhere)
	rm -rf build dist $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
