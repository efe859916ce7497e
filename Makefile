# Two commands are the whole set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# A file's tests stay together, since they share what was made for the first of them.
BESIDE := -n auto --maxprocesses 4 --dist loadfile

.PHONY: demo test check format docs pictures page-pictures rules dashboards servers collector bench lock clean

$(STAMP): requirements/dev.txt pyproject.toml
	@echo "making the environment in $(VENV): some minutes once, torch is large"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# A real model on real data, then the local page on that run: it stays while somebody looks, else ends by itself.
demo: $(STAMP)
	@$(BIN)/python examples/digits.py
	@$(BIN)/otel-train ui latest --open --until-idle 60

# Everything: format, lint, types, then all tests, with the coverage floor: those that measure by the clock, or start
# the servers of the stack, with nothing beside them, all others side by side. The tests of the stack run where its
# programs are; with CI set and Go on PATH they are built first, else `make servers` does it.
test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(PYTHON) tests/stack/build.py --for-tests
	@failed=0; \
	$(PYTEST) $(BESIDE) -m "not alone and not stack" --cov --cov-report= || failed=1; \
	$(PYTEST) -m "alone or stack" --cov --cov-append --cov-report=term --cov-fail-under=90 || failed=1; \
	exit $$failed

# Quick, and green at every commit.
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -q $(BESIDE) -m "not slow and not gpu"

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Reference pages from the tables of names and settings.
docs: $(STAMP)
	$(BIN)/python docs/generate.py

# The pictures of docs/internals.md, from trainings that are ill on purpose: about a quarter of an hour, with chromium.
pictures: $(STAMP)
	$(BIN)/python docs/pictures.py

# The pictures of docs/local-page.md, of the real page over runs that are trained for it: some minutes, with chromium.
page-pictures: $(STAMP)
	$(BIN)/python docs/page_pictures.py

# Alert and recording rules, their tests, and the runbook, from their Python source.
rules: $(STAMP)
	$(BIN)/python -m deploy.prometheus.source

# Grafana's dashboards from their Python source.
dashboards: $(STAMP)
	$(BIN)/python -m grafana.source

# The stack's servers for its tests, from Go modules into the user's cache: about ten minutes once, then nothing.
servers:
	@$(PYTHON) tests/stack/build.py

# Of these only the Collector of collector/manifest.yaml.
collector:
	@$(PYTHON) tests/stack/build.py collector

bench: $(STAMP)
	$(BIN)/python benchmarks/record_cost.py

# Resolves the development environment anew; needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --group dev --extra view --extra parquet --extra torch --extra loguru --extra structlog --extra otlp --extra prometheus --extra lightning --extra transformers --extra accelerate pyproject.toml -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
