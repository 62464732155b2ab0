# Every target does its own set-up in a local environment: Python 3.11+, pip and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-chaos lint types bench bench-optimum figures docs clean

help: ## say what there is to do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## join two live streams inside a memory budget and show what it cost
	$(BIN)/penstock demo

test: lint types $(READY) ## everything that must hold: lint, types, rooms, tests
	$(BIN)/python -m pytest

test-chaos: $(READY) ## kill, break and lose what can be on Spark, for half an hour
	$(BIN)/python -m pytest -m chaos tests/chaos

lint: $(READY) ## ruff and the rooms (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY) ## mypy, strict
	$(BIN)/mypy

bench: $(READY) ## measure speed and memory; writes benchmarks/results.json and the tables made from it
	$(BIN)/python -m benchmarks

bench-optimum: $(READY) ## measure the offline optimum; writes benchmarks/optimum.json, docs/optimum.md and its plot
	$(BIN)/python -m benchmarks.optimum

figures: $(READY) ## measure the papers' figures; writes benchmarks/figures.json and the claims made from it
	$(BIN)/python -m benchmarks.figures

docs: $(READY) ## rewrite the generated tables in README.md and docs/
	$(BIN)/python -m benchmarks.tables

clean: ## remove the local environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
