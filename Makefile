# Two commands: `make demo` and `make test`. Each sets everything up first; nothing else has to be typed.
PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3))
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-all lint clean

$(INSTALLED): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "mpt_bayes needs Python 3.11 or later: make PYTHON=/path/to/python"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[data,antibody,pretrain,dev]"
	touch $@

demo: $(INSTALLED)
	$(BIN)/mpt-bayes demo --output demo_output

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One thread for each of the two test workers.
test test-all: export OMP_NUM_THREADS = 1

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m ""

clean:
	rm -rf $(VENV) demo_output
