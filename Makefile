# Two commands: `make demo` and `make test`. Each sets everything up first; nothing else has to be typed.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-all lint clean

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[data,antibody,dev]"
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m ""

clean:
	rm -rf $(VENV) demo_output
