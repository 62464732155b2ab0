# Every target does its own set-up in a local environment: Python 3.11+, pip and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2  # processes that run tests at once; each may start a Spark of its own

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-chaos test-kafka test-wheel test-site lint types bench bench-spark bench-planner bench-multiway bench-optimum bench-quality bench-archive bench-refine bench-auto bench-limits bench-decisions bench-recall bench-cpu bench-dashboard figures docs site clean

help: ## say what there is to do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## join two live streams inside a memory budget and show what it cost
	$(BIN)/penstock demo

test: lint types $(READY) ## everything that must hold: lint, types, rooms, tests
	$(BIN)/python -m pytest --collect-only --quiet --quiet  # several processes would tell of a broken file at the end only
	$(BIN)/penstock warmup
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

test-browser: $(READY) ## the dashboard's page in a real Chromium, which it needs: apt-get install chromium
	@[ -n "$$PENSTOCK_CHROMIUM" ] || command -v chromium chromium-browser google-chrome >/dev/null || \
		{ echo "no Chromium found: apt-get install chromium (or its like), or set PENSTOCK_CHROMIUM to one"; exit 1; }
	$(BIN)/python -m pytest -m browser tests/dashboard

test-chaos: $(READY) ## kill, break and lose what can be on Spark, for half an hour
	$(BIN)/python -m pytest -m chaos tests/chaos

test-kafka: $(READY) ## run jobs against a real Kafka broker on loopback, and a Delta table (jars come through Maven)
	$(BIN)/python -m pytest -m kafka tests/kafka

test-wheel: $(READY) ## build the wheel, install it alone into a fresh environment, and submit it to a cluster on loopback
	$(BIN)/python -m pytest -m wheel tests/wheel

test-site: $(READY) ## build the site of the documentation in a fresh environment, strictly
	$(BIN)/python -m pytest -m site tests/site

lint: $(READY) ## ruff and the rooms (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY) ## mypy, strict
	$(BIN)/mypy

bench: $(READY) ## measure speed and memory; writes benchmarks/results.json and the tables made from it
	$(BIN)/python -m benchmarks

FLINK := .venv-flink/bin/python
$(FLINK):
	$(PYTHON) -m venv .venv-flink
	$(FLINK) -m pip install --quiet --disable-pip-version-check 'apache-flink>=2.1,<3'

bench-spark: $(READY) $(FLINK) ## measure the join on a local Spark beside its peers (installs Flink beside it)
	PENSTOCK_FLINK_PYTHON=$(FLINK) $(BIN)/python -m benchmarks.spark

bench-planner: $(READY) ## compare orders of 1,000 random joins; writes benchmarks/planner.json and its table
	$(BIN)/python -m benchmarks.planner

bench-multiway: bench-planner ## measure joins of several streams; writes benchmarks/multiway.json and its tables
	$(BIN)/python -m benchmarks.multiway

bench-optimum: $(READY) ## measure the offline optimum; writes benchmarks/optimum.json, docs/optimum.md and its plot
	$(BIN)/python -m benchmarks.optimum

bench-quality: $(READY) ## measure every policy as a share of the optimum; writes benchmarks/quality.json, docs/quality.md
	$(BIN)/python -m benchmarks.quality

bench-archive: $(READY) ## measure what policies leave incomplete; writes benchmarks/archive.json, docs/refine.md's table
	$(BIN)/python -m benchmarks.archive

bench-refine: $(READY) ## measure the repair of a tenth and a fifth of 10^7 rows beside the whole join; writes benchmarks/refine.json
	$(BIN)/python -m benchmarks.refine

bench-auto: $(READY) ## measure auto beside the best other policy; writes benchmarks/auto.json and docs/auto.md's table
	$(BIN)/python -m benchmarks.auto

bench-limits: $(READY) ## measure what no policy can exceed; writes benchmarks/limits.json and a table of docs/auto.md
	$(BIN)/python -m benchmarks.limits

bench-decisions: $(READY) ## compare what policies keep with the best schedule; writes benchmarks/decisions.json and a table of docs/auto.md
	$(BIN)/python -m benchmarks.decisions

bench-recall: $(READY) ## measure live recall and advice; writes benchmarks/recall.json and docs/recall.md's tables
	$(BIN)/python -m benchmarks.recall

bench-cpu: $(READY) ## measure joins under a CPU budget (on Spark: python -m benchmarks.cpu --only spark-clock); writes benchmarks/cpu.json, docs/cpu.md's tables and the claims
	$(BIN)/python -m benchmarks.cpu

bench-dashboard: $(READY) ## measure what a dashboard costs; writes benchmarks/dashboard.json, docs/dashboard.md and docs/dashboard.png
	$(BIN)/python -m benchmarks.dashboard

figures: $(READY) ## measure the papers' figures; writes benchmarks/figures.json and the claims made from it
	$(BIN)/python -m benchmarks.figures

docs: $(READY) ## rewrite the generated tables in README.md and docs/
	$(BIN)/python -m benchmarks.tables

site: $(READY) ## make a site of the documentation, in site/ (installs mkdocs)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/mkdocs build --strict

clean: ## remove the local environment and caches
	rm -rf $(VENV) .venv-flink .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
