SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
BIN := .venv/bin
ROOMS := contracts market migrations requester runner worker
SOURCES := $(ROOMS) gradmarket benchmarks tests

.PHONY: types
types:  # the rooms under their installed names, as links, for mypy
	@rm -rf build/types && mkdir -p build/types/gradmarket
	ln -s ../../../gradmarket/* build/types/gradmarket/
	for room in $(ROOMS); do ln -s ../../../$$room build/types/gradmarket/$$room; done
	MYPYPATH=build/types $(BIN)/mypy --config-file pyproject.toml -p gradmarket
