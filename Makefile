# make demo and make test set themselves up: each creates .venv on its first call.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

.PHONY: demo test test-slow test-all lint docs tables bench clean

demo: $(READY)  ## train on embedded long-tailed data and compare
	$(BIN)/python examples/compare.py

test: $(READY)  ## the tests, in less than five minutes
	$(PYTEST) -m "not slow"

test-slow: $(READY)  ## those that take longer
	$(PYTEST) -m slow

test-all: $(READY)  ## every test that can run here
	$(PYTEST)

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## the documentation, in site/
	$(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

tables: $(READY)  ## the tables of README.md and docs/, from results/
	$(BIN)/python results/tables.py

bench: $(READY)  ## speed beside the peers
	$(BIN)/python benchmarks/head_cpu.py

clean:
	rm -rf $(VENV) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wcdas needs Python 3.11 or later; call make with PYTHON=/path/to/python3.11")'
	@echo "Setting up $(VENV): PyTorch and its companions, a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
