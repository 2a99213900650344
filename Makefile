# Every target sets up what it needs: `make test` on a fresh clone is enough.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JAVA_STAMP := $(VENV)/.java_home
PIP := $(BIN)/python -m pip --disable-pip-version-check --retries 10 --timeout 60

# The Java runtime that set-up found, for the targets that start Spark.
WITH_JAVA = JAVA_HOME="$$(cat $(JAVA_STAMP))"

CHECKED := src $(wildcard benchmarks)

.PHONY: help setup demo test lint mutants bench reproduce clean

help: ## Show this list
	@echo "Streamshed. Targets:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Another Python: make setup PYTHON=/path/to/python3.12 (3.11 or newer)"

setup: $(STAMP) $(JAVA_STAMP) ## Create .venv with all dependencies, and see to a Java runtime
	@echo "Ready: $(BIN)/streamshed"

demo: setup ## Play a day with a burst of three times this machine's capacity, without and with shedding
	@$(WITH_JAVA) $(BIN)/streamshed demo

test: setup ## Run all tests and the examples in docstrings (ARGS="-m 'not spark'" to choose)
	@$(WITH_JAVA) $(BIN)/pytest $(ARGS)

lint: setup ## Check style, types and the layers between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CHECKED)
	$(BIN)/lint-imports

mutants: setup ## Put faults into the code and see which the tests catch (ARGS="-p control --show")
	@$(WITH_JAVA) $(BIN)/python scripts/mutants.py $(ARGS)

bench: setup ## Measure Streamshed on this machine
	@$(WITH_JAVA) $(BIN)/python -m benchmarks

reproduce: setup ## Reproduce the experiments of the papers
	@$(WITH_JAVA) $(BIN)/streamshed reproduce --out out/reproduce --json out/reproduce/claims.json

clean: ## Remove caches and build products (keeps .venv)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	rm -rf spark-warehouse metastore_db derby.log
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

$(BIN)/python:
	@PYTHON="$(PYTHON)" scripts/make_venv.sh $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Streamshed and its dependencies into $(VENV) (PySpark is large: this takes some minutes)"
	@$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

$(JAVA_STAMP): scripts/ensure_java.sh | $(BIN)/python
	@scripts/ensure_java.sh > $@.tmp && mv $@.tmp $@ || { rm -f $@.tmp; exit 1; }
