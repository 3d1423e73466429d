# Everything is installed into a virtual environment of its own; each target is safe to repeat.
PYTHON ?= python3
VENV   ?= .venv
EXTRA  ?= cpu
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.magicrl-$(EXTRA)

.PHONY: help setup quickstart test soak lint clean

help:        ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP)  ## install magicrl and its tools into VENV; EXTRA=gpu for CUDA

$(STAMP): pyproject.toml ops/setup.sh
	@PYTHON=$(PYTHON) EXTRA=$(EXTRA) sh ops/setup.sh $(VENV)
	@touch $@

quickstart: setup  ## train a tiny model on this machine
	@$(BIN)/magicrl quickstart

lint: setup  ## ruff, import-linter and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

test: setup lint  ## lint, then all tests but the long ones
	$(BIN)/python -m pytest

soak: setup  ## the long tests
	$(BIN)/python -m pytest -m soak

clean:       ## remove VENV and the caches of the tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
