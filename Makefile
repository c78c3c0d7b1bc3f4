# Each target sets up all it needs. `make help` lists them.
PYTHON_IN_VENV := .venv/bin/python
SUITE ?= write
ALONE := tests/faults tests/shop
WAITING_FAULTS := $(filter-out $(ALONE),$(wildcard tests/*)) tests/faults/sagas tests/faults/readmodels
# Without bytecode every process of a test compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-faults servers check format bench docs

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:
	@scripts/setup

demo:  ## Run the shop on embedded real servers (PILLARBOX_DEMO_SECONDS=30 ends by itself)
	@started=$$(date +%s); scripts/setup && PILLARBOX_DEMO_STARTED=$$started $(PYTHON_IN_VENV) -m examples.demo

test: setup  ## Run the tests on the servers that are here
	@$(PYTHON_IN_VENV) -m pytest -m "not faults" -n 5 --dist loadscope --no-loadscope-reorder $(ARGS)

test-faults: setup  ## Run the kill loops; those that mostly wait side by side, the others alone
	@$(PYTHON_IN_VENV) -m pytest -m faults -n 3 --dist loadscope --no-loadscope-reorder $(WAITING_FAULTS) $(ARGS)
	@$(PYTHON_IN_VENV) -m pytest -m faults $(ALONE) $(addprefix --ignore=,$(WAITING_FAULTS)) $(ARGS)

servers: setup  ## Install the servers that do not come as wheels
	@$(PYTHON_IN_VENV) -m pillarbox.servers install

check: setup  ## Check format, lint, import contracts and types
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/lint-imports --no-cache
	@.venv/bin/mypy

format: setup  ## Format and fix what can be fixed
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: setup  ## Run a benchmark: make bench SUITE=write
	@$(PYTHON_IN_VENV) -m benchmarks $(SUITE)

docs: setup  ## Build the documentation into site/
	@.venv/bin/zensical build --clean --strict
