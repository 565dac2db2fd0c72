# `make demo` and `make test` set up everything they need in .venv and run; they need Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

NATIVE := src/adaptive_td/native
KERNEL := $(NATIVE)/kernel_baseline.so
SANITIZED := build/sanitized

.PHONY: help demo figures test test-slow test-players test-sanitize lint format bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 11), 'adaptive-td needs Python 3.11 or newer'"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(PIP) --editable ".[dev]"
	touch $(VENV)/.core $@

$(KERNEL): $(NATIVE)/kernel.cpp $(wildcard $(NATIVE)/*.h) $(NATIVE)/build.py | $(BIN)/python
	-$(BIN)/python $(NATIVE)/build.py

demo: $(VENV)/.core  ## four methods on a walk among walls: table, heat maps, HTML page
	$(BIN)/adaptive-td demo

figures: $(VENV)/.core  ## the paper's figures in docs/figures, from the results in this repository
	$(BIN)/adaptive-td figures results/* --out docs/figures

test: $(VENV)/.dev $(KERNEL)  ## all tests but the slow ones, on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev $(KERNEL)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-players: $(VENV)/.dev  ## the tests of players from Stable-Baselines3 and the hub (installs PyTorch)
	$(PIP) --editable ".[dev,hub]"
	$(BIN)/python -m pytest tests/test_atari.py -k archive

test-sanitize: $(VENV)/.dev  ## the kernel's tests with address and undefined-behaviour sanitizers
	$(BIN)/python $(NATIVE)/build.py $(SANITIZED) --sanitize
	ADAPTIVE_TD_KERNELS=$(SANITIZED) ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so.6)" \
	$(BIN)/python -m pytest tests/test_engines.py tests/test_convolutions.py \
	-k "any_shape or threads or kind_and_shape or whole or updates_of_every or every_state"

lint: $(VENV)/.dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

BENCH := .venv-bench
$(BENCH)/.done: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	touch $@

bench: $(BENCH)/.done  ## speed beside PyTorch and JAX, as ratios in one run (resumes where it stopped)
	$(BENCH)/bin/python -m benchmarks

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(BENCH) build dist .pytest_cache .mypy_cache .ruff_cache
