# `make demo` and `make test` set up everything they need in .venv and run; they need Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test test-slow lint format bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 11), 'adaptive-td needs Python 3.11 or newer'"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(PIP) --editable ".[dev]"
	touch $(VENV)/.core $@

demo: $(VENV)/.core  ## four methods on a walk among walls: table, heat maps, HTML page
	$(BIN)/adaptive-td demo

test: $(VENV)/.dev  ## all tests but the slow ones, on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## speed, as ratios in one run
	$(BIN)/python -m benchmarks

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
