# Every target prepares what it needs. `make help` lists them.
VENV   := .venv
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
SOURCES := lunshare tests tools

# A container may tell Python to store no bytecode. Then each process that a test starts
# would compile lunshare again.
unexport PYTHONDONTWRITEBYTECODE
# The programs of others, one after the other: each starts servers.
OTHERS := outside,fleet-quick,prometheus,proxies,clients-quick,tempest

# A part that fails keeps no other one from running. make names each that failed.
MAKEFLAGS += --keep-going

# Many small commits: where the machine has enough memory, their files are there.
unit api conformance daemon restart matrix orders: export PYTEST_DEBUG_TEMPROOT = $(shell tests/memory)

.PHONY: help demo check lint unit others api conformance daemon test test-full restart storm storm-seeds storm-tests system quick openapi fuzz fuzz-hosts fuzz-kernels handovers handover-cuts matrix orders fleet-quick fleet-releases fleet cluster stonith prometheus proxies services images thin-1 thin-2 thick-1 thick-2 node-1 node-2 target judged tempest tempest-lab local-attach takeover clients clients-quick clients-page test-kernels outside test-loopback bench run sample api-reference states walks clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(VENV)/.ready: setup.cfg pyproject.toml Makefile
	tests/prerequisites
	python3 -m venv $(VENV)
	@echo "installing lunshare and what its tests need, some minutes"
	@$(VENV)/bin/pip install --editable '.[test]' >$(VENV)/pip.txt 2>&1 || { cat $(VENV)/pip.txt >&2; exit 1; }
	touch $@

demo: $(VENV)/.ready ## one volume for three hosts, two of them read-only, on a real kernel
	tests/demo/run

check: $(VENV)/.ready ## the fast loop: lint, unit, api and conformance at the same time
	tests/beside lint unit api conformance

lint: $(VENV)/.ready ## format, lint, import contracts, types
	$(VENV)/bin/ruff format --check --quiet $(SOURCES)
	$(VENV)/bin/ruff check --quiet $(SOURCES)
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/mypy

unit: $(VENV)/.ready ## tests of single parts, and of the lab's own code
	$(PYTEST) -q -n 2 tests/unit tests/lab

api: $(VENV)/.ready ## the API of a node in the process of the test
	$(PYTEST) -q -m "not daemon" tests/api

conformance: $(VENV)/.ready ## the conformance kit on the fake and NFS drivers, and on broken ones
	$(PYTEST) -q tests/conformance

daemon: $(VENV)/.ready ## the API of a daemon as a process: users, tokens, policy, listeners, clients
	$(PYTEST) -q -n 2 --dist loadfile -m daemon tests/api

# A part that fails keeps no other one from running; the last line names those that did.
test: $(VENV)/.ready ## everything: check; services, others and the judged system tests at the same time; the quick guests
	tests/beside lint unit api conformance \
		--next daemon,restart,storm-seeds,openapi $(OTHERS) images,judged --next quick

system: quick judged ## the system tests on a real kernel: in quick guests of the lab, then on the stock kernel

quick: ## all of them in quick guests of the lab
	tests/system/run

test-full: test fleet-releases clients tempest-lab local-attach takeover fleet cluster stonith test-kernels fuzz fuzz-kernels handovers orders ## hours: everything, every client, every system test on both stock kernels, longer fuzzing and storm
	tests/storm/run --seconds 600
	tests/openapi/run --seconds 300 --auth noauth
	tests/openapi/run --seconds 300 --auth http_basic
	tests/openapi/run --seconds 300 --auth keystone
	tests/openapi/run --seconds 300 --version 3.27
	tests/openapi/run --seconds 300 --version 3.0

restart: $(VENV)/.ready ## start, refused starts, kill -9 at every step, clients in every order of commits; fake backend
	$(PYTEST) -q -n 2 tests/restart

handover-cuts: $(VENV)/.ready ## a quarter of an hour: the node loses its power at each step of a handover, on a stock kernel
	tests/system/handover_cuts

matrix: $(VENV)/.ready ## kill each change of who may write at each step, and each start after it: the table of decision 0044
	$(PYTEST) -q tests/restart/crash_matrix.py

orders: $(VENV)/.ready ## hours: all operations of two clients on the access of hosts, in every order, with a step that fails
	$(PYTEST) -q -s --timeout 36000 tests/restart/every_access_order.py

# One after the other: together they would be too much for two processors.
services: ## the four that start daemons of their own
	tests/beside daemon,restart,storm-seeds,openapi

storm: $(VENV)/.ready ## 60 s of many clients, faults and kill -9 against a daemon, then the invariants; a new seed each time
	tests/storm/run

storm-seeds: storm-tests storm-741602316 storm-20261125 ## the storm's own tests, then 60 s of it with seeds that are always the same

storm-tests: $(VENV)/.ready
	$(PYTEST) -q -n 2 tests/storm

storm-%: $(VENV)/.ready
	tests/storm/run --seed $* --seconds 30

openapi: openapi-noauth openapi-http_basic openapi-keystone ## 80 s of schemathesis with each auth strategy: no 5xx, no answer that the OpenAPI document lacks; SEED=...

openapi-%: $(VENV)/.ready
	tests/openapi/run --seconds 26 --auth $* $(if $(SEED),--seed $(SEED))

EXAMPLES ?= 20000
fuzz: $(VENV)/.ready ## random frames, verbs and commands against the root helper; EXAMPLES=20000
	$(PYTEST) -q tests/unit/test_border_fuzz.py tests/unit/test_filters_fuzz.py --timeout 3600 --fuzz-examples $(EXAMPLES) $(if $(SEED),--fuzz-seed $(SEED))

COMMANDS ?= 30000
KERNEL ?= uml
fuzz-hosts: ## random PDUs of hostile hosts, until the kernel shows a fault; COMMANDS=30000 SEED=404 KERNEL=uml
	tests/lab/run --kernel $(KERNEL) -- python -m pytest -q -p no:cacheprovider tests/system/test_lio_fuzz.py \
		--fuzz-commands $(COMMANDS) $(if $(SEED),--fuzz-seed $(SEED))

fuzz-kernels: ## hours: a million of them on each kernel
	$(MAKE) fuzz-hosts COMMANDS=1000000 KERNEL=uml
	$(MAKE) fuzz-hosts COMMANDS=1000000 KERNEL=6.1
	$(MAKE) fuzz-hosts COMMANDS=1000000 KERNEL=6.12

HANDOVERS ?= 1000
handovers: $(VENV)/.ready ## handovers under I/O of three hosts in a quick guest, how long nobody could write, and kills at each step; HANDOVERS=1000
	tests/lab/run --kernel uml -- python -m pytest -q -s -p no:cacheprovider tests/system/test_handover.py tests/system/test_killed_writers.py --handovers $(HANDOVERS)

fleet-quick: $(VENV)/.ready ## three minutes: a stock Cinder 29.0.0 whose cinder-volume runs the drivers; fake storage
	tests/fleet/run

fleet-releases: $(VENV)/.ready ## seven minutes: the same with the two releases of Cinder before it
	CINDER_RELEASE=28.0.0 tests/fleet/run
	CINDER_RELEASE=27.0.0 tests/fleet/run

fleet: $(VENV)/.ready ## half an hour, as root: a stock Cinder, and two nodes with LVM and LIO in quick guests of the lab
	tests/fleet_nodes/run

cluster: $(VENV)/.ready ## some minutes, as root: OCFS2, Pacemaker and multipath on three hosts of one node, machines that start from its disk, in quick guests of the lab
	tests/cluster/run -k 'not pacemaker'
	tests/cluster/run -k pacemaker

stonith: $(VENV)/.ready ## some minutes: Pacemaker's fencer fences frozen writers with fence_lunshare, in a quick guest
	tests/stonith/run

prometheus: $(VENV)/.ready ## a real Prometheus with the metrics of a daemon and the shipped alerts
	tests/prometheus/run

proxies: $(VENV)/.ready ## haproxy and nginx in front: no request is one for them and two for the node
	tests/proxies/run

others: ## the programs of others: an outside driver, a stock Cinder, Prometheus, clients, Tempest
	tests/beside $(OTHERS)

tempest: $(VENV)/.ready ## 4 minutes: Tempest 47.0.0 with a real Keystone against a daemon on fake backends
	tests/tempest/run $(TESTS)

tempest-lab: $(VENV)/.ready ## 6 minutes: Tempest against the installed daemon, LVM and LIO, in a quick guest of the lab
	tests/tempest/run --lab $(TESTS)

local-attach: $(VENV)/.ready ## 2 minutes: a host attaches by itself with brick-cinderclient-ext, in a quick guest
	tests/brick/run

takeover: $(VENV)/.ready ## 20 minutes: a stock Cinder in a quick guest: a takeover with hosts, and backends on NFS
	tests/cinder_guest/run

clients: $(VENV)/.ready ## every command of the usual clients against a daemon; is docs/clients.md current?
	tests/clients/run $(if $(TESTS),-k '$(TESTS)')

clients-quick: $(VENV)/.ready ## a minute of it: cinder with http_basic, the SDK and Nova with Keystone
	tests/clients/run -k '(cinder and http_basic or (sdk or nova) and keystone) and not names'

clients-page: $(VENV)/.ready ## the same, and write docs/clients.md
	tests/clients/run --write

images: ## build the lab's guests into its cache, once; nothing on a machine that is a storage node
	@[ -S /run/lunshare/helper.sock ] || tests/lab/run --build

# The lanes of tests/system/lanes.py, each in a quick guest; tests/system/run.
thin-1 thin-2 thick-1 thick-2 node-1 node-2 target:
	tests/lab/run --kernel uml -- python -m tests.system.suite /build $@

judged: ## the system tests that every run must pass on the stock kernel 6.1; nothing on a machine that is a storage node
	@[ -S /run/lunshare/helper.sock ] || tests/system/run --kernel 6.1 judged

test-kernels: check ## the system tests on both supported kernels
	tests/system/run --kernel 6.1
	tests/system/run --kernel 6.12

outside: $(VENV)/.ready ## a driver in a separate package, tested with the conformance kit
	tests/outside_driver/run

test-loopback: ## LVM, LIO and the outside driver on this machine's kernel as root, else in the lab
	tests/loopback/run

bench: $(VENV)/.ready ## measure the figures of docs/performance.md, into build/bench.json
	tests/bench/run

run: $(VENV)/.ready ## the daemon on the fake backend, as your user, on 127.0.0.1:8776
	$(VENV)/bin/lunshared --config-file etc/fake.conf --state-path build/run --listen 127.0.0.1:8776

sample: $(VENV)/.ready ## write etc/lunshare.conf.sample from the options
	$(PYTHON) -m tools.sample >etc/lunshare.conf.sample

api-reference: $(VENV)/.ready ## write docs/api-reference.md and docs/openapi.json from the routes, schemas and handlers
	$(PYTHON) -m tools.api_document.reference >docs/api-reference.md
	$(PYTHON) -m tools.api_document.openapi lunshare/agent/api/openapi.json

walks: $(VENV)/.ready ## write the files of a request into ARCHITECTURE.md
	$(PYTHON) -m tests.unit.walks

states: $(VENV)/.ready ## write docs/states.md from the tables in lunshare/agent/model/states.py
	$(PYTHON) -m tools.states_page >docs/states.md

clean: ## remove the results of builds and tests (the lab's image cache is elsewhere)
	rm -rf build dist $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
