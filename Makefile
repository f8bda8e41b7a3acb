# Everything a fresh machine needs. `make help` lists the targets.
#
# One virtual environment; one stamp per set of packages, so that nothing is installed twice. PyTorch comes first and
# pinned: pip then takes the build that this machine is set up for, and the package only states a range. Everything else has
# the version in .ci/pins.txt, so that what was audited and tested is what is installed.

VENV ?= .venv
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PINS := --constraint .ci/pins.txt
# Small matrices on several threads are slower than on one, and pytest-xdist already uses the cores.
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest
PARALLEL := -n auto --maxprocesses 8

.PHONY: help demo test test-long lint types docs pins clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.stamp-run  ## fine-tune the embedded tiny model on embedded data and print what it learned
	$(BIN)/dynotune demo

test: $(VENV)/.stamp-test  ## the test suite
	$(PYTEST) -m "not long" $(PARALLEL)

test-long: $(VENV)/.stamp-test  ## kills, fuzz, soak, statistics and corpora
	$(PYTEST) -m long $(PARALLEL)

lint: $(VENV)/.stamp-dev  ## style
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.stamp-dev  ## types, strictly
	$(BIN)/mypy

docs: $(VENV)/.stamp-docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pins:  ## take the newest versions of what the suite runs with into .ci/pins.txt
	rm -rf .venv-pins
	: > .ci/pins.txt
	$(MAKE) VENV=.venv-pins .venv-pins/.stamp-dev .venv-pins/.stamp-docs
	.venv-pins/bin/python .ci/pins.py > .ci/pins.txt
	rm -rf .venv-pins

clean:  ## remove the virtual environment and everything that was built
	rm -rf $(VENV) .venv-pins .venv-audit site build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis

# A stamp on its way to being written is a failed installation: make deletes it and tries again next time.
$(VENV)/.stamp-venv:
	@set -e; for python in python3.11 python3.12 python3.13 python3; do \
	  if $$python -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	    echo "making $(VENV) with $$($$python --version)"; $$python -m venv $(VENV); touch $@; exit 0; \
	  fi; done; \
	echo "No Python 3.11 to 3.13 with the venv module on PATH. Install one (Debian: python3.11 and python3.11-venv)." >&2; exit 1

# The pip that comes with Python is as old as that Python.
$(VENV)/.stamp-torch: $(VENV)/.stamp-venv
	$(PIP) install --quiet $(PINS) --upgrade pip
	$(PIP) install --quiet $(PINS) "$(TORCH)"
	touch $@

$(VENV)/.stamp-run: $(VENV)/.stamp-torch pyproject.toml .ci/pins.txt
	$(PIP) install --quiet $(PINS) --editable .
	touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-run
	$(PIP) install --quiet $(PINS) --editable ".[test]"
	touch $@

# The type checker reads the packages that the tests use too.
$(VENV)/.stamp-dev: $(VENV)/.stamp-test
	$(PIP) install --quiet $(PINS) --editable ".[test,dev]"
	touch $@

$(VENV)/.stamp-docs: $(VENV)/.stamp-run
	$(PIP) install --quiet $(PINS) --editable ".[docs]"
	touch $@
