# Everything here works on a fresh machine that has Python 3.11+ and make.
PYTHON ?= python3
# The versions that the tests were run with. `make setup-dev PIP_ARGS=` takes the newest instead.
PIP_ARGS ?= -c tested.txt
VENV   := .venv
BIN    := $(VENV)/bin
# Small matrix products on a machine with few cores are faster, and steadier, on one thread.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all test-research test-slow tested lint bench bench-all bench-queries bench-games bench-faults docs \
	release-check release setup setup-dev clean

demo: $(VENV)/.base
	@$(BIN)/c2fa demo

setup: $(VENV)/.base
setup-dev: $(VENV)/.dev

# An environment of too old a Python, or one that was left half made, is made anew.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "c2fa needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version); give another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.base: $(VENV)/.python pyproject.toml tested.txt
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[test]"
	@touch $@

# On Linux, torch is by default the build for NVIDIA's GPUs, several gigabytes with what it needs. A CPU build that is
# already in .venv, or that pip is configured to find, is taken instead.
$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[dev]"
	@touch $@

# The tests whose packages are installed; the others skip and say what they need.
test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --no-half

# The experiments' and the benchmarks' own tests.
test-research: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "research and not slow and not servers" tests/research

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or servers"

# tested.txt anew, from what .venv holds. For the newest versions of everything: make clean, make setup-dev with
# PIP_ARGS="torch==VERSION" or whichever torch is wanted, make test-all lint test-research test-slow, and then this.
tested: $(VENV)/.dev
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' | grep -Ev '^(nvidia|cuda|triton)|[ @]' > tested.txt

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/solvers.py

# The other figures of the README and the documentation; the first two need the reviews beside the checkout or minutes.
bench-all: bench
	$(BIN)/python benchmarks/synthetic.py
	$(BIN)/python benchmarks/masking.py
	$(BIN)/python benchmarks/many.py
	$(BIN)/python benchmarks/defaults.py

# What a budget of queries buys, with targets; minutes. ARGS="--only a,cost" runs some of it, ARGS=--quick tries it out.
bench-queries: $(VENV)/.dev
	$(BIN)/python -m benchmarks.queries $(ARGS)

# Owen and Shapley values of games whose every mask is tabulated, beside others' estimators; minutes.
bench-games: $(VENV)/.dev
	$(BIN)/python -m benchmarks.games $(ARGS)

# Attempts to make it lose, repeat, change or leak something; minutes. Fails where one succeeds.
bench-faults: $(VENV)/.dev
	$(BIN)/python -m benchmarks.faults $(ARGS)

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

# What would be published, built and checked; actionlint looks at the workflows where it is installed.
release-check: $(VENV)/.release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python tools/release.py check

# A tag that is pushed is what publishes.
release: $(VENV)/.release
	@$(BIN)/python tools/release.py ready
	@$(MAKE) release-check
	git tag v$$($(BIN)/python tools/release.py version)
	@echo "Push the tag to publish it."

$(VENV)/.release: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --group release
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache build dist site
