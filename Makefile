# Everything a person does here, by name. `make help` lists it.

PYTHON ?= python3
# How many processes share the tests; those that talk to servers or start workers mostly wait.
JOBS ?= 4
SYSTEM_JOBS ?= 4
CHART_JOBS ?= 2
UNIT_JOBS ?= 2
ARGS ?=
ONLY ?=
PEERS ?=
# Of `make chaos`: seconds of faults, what they and the events are drawn by, redis, rabbitmq or sqs alone,
# and which guarantee to break on purpose.
DURATION ?= 600
SEED ?= 1
BROKER ?=
MUTATION ?=
# Of `make fuzz`, which takes the same SEED.
SECONDS ?= 60

BIN := .venv/bin
ENVIRONMENT := $(PYTHON) tools/environment.py
SERVERS := $(PYTHON) tools/servers
UV := build/uv/bin/uv
HADOLINT := build/hadolint/bin/hadolint
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make pins"

# Tests start hundreds of processes: each would compile our sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check unit bench bench-peers peers-env chaos fuzz soak ship endure canvas corpus corpus-score chart dist docs image image-check \
	cluster-check clean \
	browser env servers-up servers-down wire wire-check pins

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# -- the environment -----------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "angzarr needs Python 3.11 to 3.13; name one: make PYTHON=python3.11 …" >&2; exit 1; }
	$(PYTHON) -m venv .venv # with pip, for people

EDITABLE := $(UV) pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps -e .

.venv/.runtime: requirements/build.txt requirements/runtime.txt pyproject.toml | $(BIN)/python
	$(ENVIRONMENT) .venv requirements/build.txt requirements/runtime.txt
	$(EDITABLE)
	@touch $@

.venv/.dev: requirements/build.txt requirements/dev.txt pyproject.toml | $(BIN)/python
	$(ENVIRONMENT) .venv requirements/build.txt requirements/dev.txt
	$(EDITABLE)
	@touch $@ .venv/.runtime

env: .venv/.dev ## the environment for developers, in .venv

pins: $(UV) ## write requirements/*.txt anew from pyproject.toml, every file with hashes
	$(COMPILE) --upgrade pyproject.toml --extra all --group dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt
	$(COMPILE) pyproject.toml --extra all -c requirements/dev.txt -o requirements/image.txt
	$(COMPILE) requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	$(COMPILE) --upgrade requirements/localstack.in -o requirements/localstack.txt
	$(COMPILE) --upgrade requirements/hadolint.in -o requirements/hadolint.txt
	$(COMPILE) --no-deps --upgrade requirements/chart.in -o requirements/chart.txt
	$(COMPILE) --upgrade requirements/docs.in -o requirements/docs.txt
	$(COMPILE) --upgrade requirements/uv.in -o requirements/uv.txt
	$(COMPILE) --upgrade requirements/peers.in -o requirements/peers.txt
	$(COMPILE) --upgrade requirements/peers-older.in -o requirements/peers-older.txt
	$(COMPILE) --upgrade requirements/release.in -c requirements/build.txt -o requirements/release.txt

$(UV): requirements/uv.txt
	$(ENVIRONMENT)
	@touch $@

# -- to run it -----------------------------------------------------------------------------------

# On real servers it needs their clients too, which the small environment does not have.
DEMO_ENV := $(if $(findstring ://,$(ARGS))$(wildcard .venv/.dev),.venv/.dev,.venv/.runtime)

demo: $(DEMO_ENV) ## the whole road in one process, no server needed (ARGS="--broker redis://…")
	$(BIN)/angzarr demo $(ARGS)

servers-up: ## start Redis, PostgreSQL, RabbitMQ, LocalStack, Kafka and Pub/Sub for tests and leave them up
	@$(SERVERS) up

servers-down: ## stop the servers that `make servers-up` started
	@$(SERVERS) down

# -- to check it ---------------------------------------------------------------------------------

browser: ## install Chromium for the tests of the pages, as root (Debian's)
	@$(SERVERS) browser

# Every step runs, also after one that failed, so that one run tells all; each is printed when it
# ends; the last lines name what failed and give the sum. What needs no server runs while they start.
test: env $(UV) build/docs/.done ## all that a change can break in the product: lint, types, pages, tests on real servers
	@rm -rf build/reports; code=0; \
	{ $(MAKE) --no-print-directory browser && \
		$(SERVERS) run $(STEPS) --jobs=2 test-system test-adapters; } & served=$$!; \
	$(STEPS) $(CHECKS) docs test-chart test-unit || code=1; \
	wait $$served || code=1; \
	$(BIN)/python tools/closing_line.py build/reports/*.xml || code=1; \
	exit $$code

STEPS := $(MAKE) --no-print-directory --keep-going --output-sync=target
.PHONY: test-system test-adapters test-chart test-unit ship-release

# Whoever has nothing left takes over from another; what ships and what endures is for `make soak`.
PYTEST := $(BIN)/pytest --dist worksteal -m "not soak"
REPORT = --junitxml=build/reports/$(@:test-%=%).xml
# What computes gives way to what waits for servers and workers, and fills the gaps. Not by much: each
# worker is a session, which Linux gives a share of its own, and these have a part of one.
GIVE_WAY := nice -n 3
# Tests that have a step of their own, or are for `make soak`.
APART := adapters browser chart cluster image system

test-system: env
	$(PYTEST) tests/system -n $(SYSTEM_JOBS) $(REPORT)

test-adapters: env build/docs/.done # which the tests of the site build with
	$(PYTEST) tests/adapters tests/browser -n $(JOBS) --every-adapter $(REPORT)

test-chart: env
	$(SERVERS) chart-tools
	$(GIVE_WAY) $(PYTEST) tests/chart -n $(CHART_JOBS) $(REPORT)

test-unit: env
	$(GIVE_WAY) $(PYTEST) $(APART:%=--ignore=tests/%) -n $(UNIT_JOBS) $(REPORT)

CHECKS := wire-check lint format types types-tests imports names
.PHONY: $(CHECKS)

check: env ## lint, format, types, import rules, generated code up to date
	@$(MAKE) --no-print-directory --keep-going $(CHECKS)

lint: env
	$(BIN)/ruff check

format: env
	$(BIN)/ruff format --check

types: env
	$(GIVE_WAY) $(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/mypy tools/check_names.py
	MYPYPATH=localstack $(BIN)/mypy -p angzarr_aws
	$(BIN)/mypy --explicit-package-bases -p release -p website
	MYPYPATH=benchmarks $(BIN)/mypy --explicit-package-bases \
		-p bare -p figures -p harness -p peers -p profiles -p workers -m compare -m page -m run

types-tests: env # calls that a changed signature breaks
	$(GIVE_WAY) $(BIN)/mypy --config-file tests/mypy.ini tests tools

imports: env
	$(BIN)/lint-imports

names: env
	$(BIN)/python tools/check_names.py

unit: env ## the tests without any server
	$(BIN)/pytest tests/unit

# All figures need the peers; who names some has them, or is told how to get them.
bench: env $(if $(ONLY),,peers-env) ## measure the figures into build/bench.json (ONLY=key,key for some)
	@$(SERVERS) run $(BIN)/python benchmarks/run.py --only "$(ONLY)"

bench-peers: env peers-env ## other task queues and ours side by side (ONLY=noop,latency PEERS=celery,rq BROKER=redis)
	@$(SERVERS) run $(BIN)/python benchmarks/compare.py --only "$(ONLY)" --peers "$(PEERS)" --broker "$(BROKER)"

peers-env: build/peers/.done build/peers-older/.done ## the environments of the other task queues

build/peers/.done build/peers-older/.done: build/%/.done: requirements/%.txt
	@rm -rf build/$*
	$(ENVIRONMENT) build/$* $<
	@touch $@

fuzz: env ## give hostile bytes to every decoder of queue bytes (SECONDS=60 SEED=1)
	@$(BIN)/python tests/fuzz $(SECONDS) $(SEED)

chaos: env ## kill, cut and flood a fleet and account for every event (DURATION=60 SEED=1 BROKER=redis)
	@$(BIN)/python tools/chaos --duration $(DURATION) --seed $(SEED) $(if $(BROKER),--broker $(BROKER)) \
		$(if $(MUTATION),--mutation $(MUTATION)) $(ARGS)

soak: env $(UV) build/docs/.done ## what ships and what endures: release, image, cluster, chaos, long models, fuzzers, kills
	@$(SERVERS) run sh -c 'code=0; \
		$(MAKE) --no-print-directory ship SMOKE= || code=1; \
		$(MAKE) --no-print-directory endure || code=1; \
		exit $$code'

# Of the cluster, CI looks at the tutorial alone.
SMOKE ?= test_tutorial.py
SHIPPED := tests/system/test_release.py tests/system/test_site.py
ship: env $(UV) build/docs/.done ## the short half of soak, which CI runs: release, site, image, the tutorial on a cluster
	@code=0; \
	$(STEPS) --jobs=2 ship-release image-check || code=1; \
	$(MAKE) --no-print-directory cluster-check ONLY=$(SMOKE) || code=1; \
	exit $$code

ship-release: dist
	$(BIN)/pytest $(SHIPPED) -m soak -n $(JOBS) --dist worksteal --junitxml=build/reports/ship.xml

endure: env # the long half of soak
	@export ANGZARR_TEST_SOAK=1; code=0; \
	$(BIN)/pytest --ignore=tests/image --ignore=tests/cluster $(SHIPPED:%=--ignore=%) -m "soak or longer" \
		-n $(JOBS) --dist worksteal --junitxml=build/reports/endure.xml || code=1; \
	$(MAKE) --no-print-directory fuzz SECONDS=$(SECONDS) SEED=$(SEED) || code=1; \
	exit $$code

canvas: env ## Celery's own tests of its canvas on an angzarr app (ARGS="-- -k chord")
	@$(BIN)/python tools/foreign/celery_canvas.py $(ARGS)

corpus: env ## provoke the failures of the labelled letters and record them (ONLY="sql http_down.refused")
	@$(SERVERS) run $(BIN)/python -m tools.corpus $(ONLY)

corpus-score: env ## precision and recall of the classifier on the labelled letters, class by class
	@$(BIN)/python -m tools.corpus --score

PROTOC := $(BIN)/python -m grpc_tools.protoc -Iproto proto/angzarr/wire/*.proto

wire: env ## generate src/angzarr/wire from proto/
	$(PROTOC) --python_out=src --pyi_out=src

wire-check: env
	@rm -rf build/wire && mkdir -p build/wire
	@$(PROTOC) --python_out=build/wire --pyi_out=build/wire
	@diff -r -x __init__.py -x __pycache__ build/wire/angzarr/wire src/angzarr/wire || \
		{ echo "src/angzarr/wire does not fit proto/: run make wire" >&2; exit 1; }

# -- to ship it ----------------------------------------------------------------------------------

# The base to build on; pin it with a digest: make image BASE=python:3.13.9-slim-trixie@sha256:…
BASE ?=
TOLD := VERSION=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' src/angzarr/_version.py) \
	REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) CREATED=$$(date -u +%Y-%m-%dT%H:%M:%SZ)

image: ## build the container image (needs a Docker engine; BASE=python:…@sha256:… pins its base)
	@docker info >/dev/null 2>&1 || \
		{ echo "make image needs a Docker engine, and none answers here; make image-check builds without." >&2; exit 1; }
	for told in $(TOLD) $(if $(BASE),PYTHON_IMAGE=$(BASE)); do set -- "$$@" --build-arg "$$told"; done; \
	docker build --tag angzarr-workers "$$@" .

image-check: env $(HADOLINT) ## build the image without an engine and run what it runs (root on Debian)
	$(HADOLINT) Dockerfile
	$(BIN)/python -m tools.image
	$(BIN)/pytest tests/image -n 2 --junitxml=build/reports/image.xml

cluster-check: env ## the tutorial, roll-outs and faults under load on a real Kubernetes (root on Debian with Go)
	$(PYTHON) tools/cluster build
	$(BIN)/pytest tests/cluster/$(ONLY) --junitxml=build/reports/cluster.xml

$(HADOLINT): requirements/hadolint.txt
	$(ENVIRONMENT) build/hadolint requirements/hadolint.txt
	@touch $@

chart: env ## lint, render, validate and test the Helm chart; helm and promtool are installed if missing
	@ANGZARR_REQUIRE_SERVERS=1 $(SERVERS) chart-tools
	ANGZARR_REQUIRE_SERVERS=1 $(BIN)/pytest tests/chart -n $(CHART_JOBS)

RELEASE := build/release/bin/python

build/release/.done: requirements/build.txt requirements/release.txt
	@rm -rf build/release
	$(ENVIRONMENT) build/release requirements/build.txt requirements/release.txt
	@touch $@

dist: env build/release/.done ## build wheel, sdist and bills of materials into dist/, and refuse what is unfit
	@$(RELEASE) -m release --environment $(BIN)/python

DOCS := build/docs/bin/python

build/docs/.done: requirements/docs.txt
	@rm -rf build/docs
	$(ENVIRONMENT) build/docs requirements/docs.txt
	@touch $@

docs: build/docs/.done ## build the documentation site into build/site and check every link of it
	NO_MKDOCS_2_WARNING=1 $(DOCS) -m mkdocs build --strict
	$(DOCS) -m website build/site

clean: servers-down ## stop servers and cluster and remove all that was built, the environment included
	$(PYTHON) tools/cluster down
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools benchmarks examples charts -name __pycache__ -prune -exec rm -rf {} +
