# Everything happens in a virtual environment of its own; each target is safe to repeat.
PYTHON ?= python3
VENV   ?= .venv
EXTRA  ?= cpu
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.magicrl-$(EXTRA)

.PHONY: setup quickstart test soak lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml ops/setup.sh
	@PYTHON=$(PYTHON) EXTRA=$(EXTRA) sh ops/setup.sh $(VENV)
	@touch $@

quickstart: setup
	@$(BIN)/magicrl quickstart

test: setup lint
	@$(BIN)/python -m pytest

soak: setup
	@$(BIN)/python -m pytest -m soak

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
