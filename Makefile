# Thin doors. Each sets up .venv on first use; the README shows the plain commands behind them.
PYTHON ?= python3
VENV := .venv
BIN := $(abspath $(VENV)/bin)
export PATH := $(BIN):$(PATH)

.PHONY: help demo test lint study ui publish clean
help:
	@echo "make demo     the whole graph, small, on text the installed packages ship: minutes, no download"
	@echo "make test     linters, types, workflow lint and all tests"
	@echo "make study    the Penn Treebank study (says hours and disk first)"
	@echo "make ui       browse runs in MLflow"
	@echo "make publish  push recorded results into store/ (after collecting what nothing refers to)"

$(VENV)/.ready: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v[:2] <= (3, 13) else f"{sys.executable} is Python {v[0]}.{v[1]}; depthtime needs 3.11 to 3.13: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(VENV)/.ready
	@depthtime demo

lint: $(VENV)/.ready
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check --compact-diff Snakefile workflow
	python -m depthtime.interlock.lint

test: lint
	python -m pytest

study: $(VENV)/.ready
	depthtime estimate
	snakemake --cores all

ui: $(VENV)/.ready
	depthtime runs import
	depthtime runs ui

publish: $(VENV)/.ready
	depthtime runs publish

clean:
	rm -rf build logs .snakemake
