# Every target sets up what it needs first. PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo docs gallery test verify bench bench-quick lint format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "== Setting up $(VENV) (a minute or two the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bpinn needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@echo "== Inferring a reaction rate from 40 noisy readings (examples/inverse_1d.py, about ten seconds)"
	@$(BIN)/python examples/inverse_1d.py --out demo-result

# Warnings are errors, such as a link that leads nowhere. No network is needed.
docs: $(READY)
	@echo "== Building the documentation (half a minute)"
	@$(BIN)/python -m sphinx -q -E -W --keep-going -b html -d site/.doctrees docs site
	@echo "Open site/index.html"

test: $(READY) lint
	@echo "== Running the tests (a few minutes)"
	@$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	@echo "== Checking style and types"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Finished parts are stored in verification/work, and the same command resumes. Exit code 3 means a wrong posterior.
verify: $(READY)
	@echo "== Checking by simulation that posteriors are correct, then running the slow tests (more than an hour)"
	@$(BIN)/python verification/run.py
	@for fault in likelihood jacobian; do \
		echo "== Injecting an error into the $$fault, which must be found"; \
		$(BIN)/python verification/run.py --fault $$fault; test $$? -eq 3 || exit 1; \
	done
	@$(BIN)/python verification/write_trust.py

# BENCH=--resume continues an interrupted run; BENCH="--only bpinn tfp_xla" compares only these.
RESULTS ?= benchmarks/results.json
PAGE ?= docs/performance.md
bench: $(READY)
	@echo "== Measuring speed against other libraries (hours; Ctrl-C keeps finished runs, BENCH=--resume continues)"
	@$(BIN)/python benchmarks/compare.py --results $(RESULTS) $(BENCH)
	@echo "== Measuring the lower bound in C, the gradient and how the cost grows"
	@$(BIN)/python benchmarks/floor.py --results $(RESULTS) || echo "   the lower bound is left out"
	@$(BIN)/python benchmarks/gradient.py --results $(RESULTS)
	@$(BIN)/python benchmarks/scaling.py --results $(RESULTS) $(SCALING)
	@$(BIN)/python benchmarks/kl.py --results $(RESULTS) $(KL)
	@test -n "$(QUICK)" || $(BIN)/python benchmarks/two_dimensions.py --results $(RESULTS)
	@echo "== Comparing coordinates, and running the suite"
	@$(BIN)/python benchmarks/coordinates.py --sets $(if $(QUICK),1,5)
	@$(BIN)/python benchmarks/suite/run.py --results benchmarks/work/suite.json $(if $(QUICK),--quick)
	@echo "== Comparing the approximate methods with HMC"
	@$(BIN)/python benchmarks/approximate.py $(if $(QUICK),--quick --results benchmarks/work/approximate_quick.json,--write docs/methods.md)
	@$(BIN)/python benchmarks/write_page.py --results $(RESULTS) --page $(PAGE)

bench-quick:
	@$(MAKE) bench BENCH="--quick $(BENCH)" SCALING=--quick KL="--repeats 1" QUICK=1 RESULTS=benchmarks/work/quick.json \
		PAGE=benchmarks/work/performance.md

# Runs the entries whose files have changed, and writes docs/gallery. GALLERY="yeast beam" runs only these.
gallery: $(READY)
	@echo "== Running the gallery (a quarter of an hour if everything has changed) and writing docs/gallery"
	@$(BIN)/python gallery/build.py $(GALLERY)

clean:
	rm -rf $(VENV) demo-result site benchmarks/.envs benchmarks/work verification/work
