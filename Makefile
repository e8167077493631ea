# Everything a developer types. `make demo` and `make test` set up what they need by themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test quick lint bench bench-elastic soak clean

install: .venv/installed

# A changed dependency list installs again; exact versions come from constraints.txt.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/python examples/demo.py

# Many tests wait for processes, so one worker more than cores keeps the cores busy. Decisions of the
# scheduler take a core for seconds: they run after the tests that wait.
# What failed is run once more by itself, and both runs are shown.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
APART := tests/schedule tests/simulate

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(APART:%=--ignore %) || $(AGAIN)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(APART) || $(AGAIN)
AGAIN = $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

quick: install
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not process and not postgres and not soak"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: install
	$(BIN)/python -m bench

# Against torchrun, torchft and AdaptDL, installed into an environment of their own: more than an hour.
# In parts: `python -m bench.elastic NAME ... --peers .bench-venv`; what they gave stays in build/.
bench-elastic: install
	$(BIN)/python -m bench.elastic --peers .bench-venv --write

soak: install
	$(BIN)/python -m pytest -m soak --hypothesis-profile soak --timeout 0 -o faulthandler_timeout=0 -s tests

clean:
	rm -rf .venv .bench-venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
