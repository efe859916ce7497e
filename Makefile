# Two commands are the whole set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check format docs bench lock clean

$(STAMP): requirements/dev.txt pyproject.toml
	@echo "making the environment in $(VENV): some minutes once, torch is large"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# A real model on real data, then the page of that run.
demo: $(STAMP)
	@$(BIN)/python examples/digits.py
	@$(BIN)/otel-train report latest

# Everything: format, lint, types, then all tests, with the coverage floor.
test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --cov --cov-report=term --cov-fail-under=90

# Quick, and green at every commit.
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not slow and not gpu"

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Reference pages from the tables of names and settings.
docs: $(STAMP)
	$(BIN)/python docs/generate.py

bench: $(STAMP)
	$(BIN)/python benchmarks/record_cost.py

# Resolves the development environment anew; needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --group dev --extra view --extra torch --extra loguru --extra structlog pyproject.toml -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
