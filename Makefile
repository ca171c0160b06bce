# Everything here works on a fresh machine that has Python 3.11+ and make.
PYTHON ?= python3
# A pinned CPU build for the project's own tests; users elsewhere install whichever torch they like.
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-slow lint bench setup setup-dev clean

demo: $(VENV)/.base
	@$(BIN)/c2fa demo

setup: $(VENV)/.base
setup-dev: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.base: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base pyproject.toml
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

test: $(VENV)/.dev
	$(BIN)/python -m pytest

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or servers"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/solvers.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
