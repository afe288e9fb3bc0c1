# Every target sets up what it needs first. PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test verify bench lint format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "== Setting up $(VENV) (a minute or two the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bpinn needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@echo "== Inferring a reaction rate from 40 noisy readings (examples/inverse_1d.py, about half a minute)"
	@$(BIN)/python examples/inverse_1d.py --out demo

test: $(READY) lint
	@echo "== Running the tests (some minutes)"
	@$(BIN)/python -m pytest -m "not slow"

lint: $(READY)
	@echo "== Checking style and types"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

verify: $(READY)
	@echo "== Running the longer statistical checks"
	@$(BIN)/python -m pytest -m slow

bench: $(READY)
	@echo "== Measuring speed"
	@$(BIN)/python benchmarks/gradient.py

clean:
	rm -rf $(VENV) demo
