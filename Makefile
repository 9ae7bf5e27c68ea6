# Everything runs in a virtual environment of its own; `make demo` and `make test` make it first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Test files run side by side; compilers of OpenCL C use one core most of the time.
WORKERS ?= 2
QUESTION ?= What is the capital of France, and what is it known for?

# The share of `make conformance` to run, and what its shapes are drawn from: the same on all stacks,
# so that the interpreter computes each example once.
PART ?= 1/1
SEED ?= 1

# What `make fuzz` tries to break (gguf, kernel, template, tokenizer), and for how long.
TARGET ?= gguf
SECONDS ?= 300

.PHONY: demo test unit lint format conformance bench fuzz wheel clean

demo: $(VENV)/.run-installed
	$(BIN)/ferro pull smollm2
	$(BIN)/ferro generate smollm2 --prompt "$(QUESTION)" --temp 0 --n-predict 120 --stats

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

unit: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -m "not slow and not device" $(PYTEST_ARGS)

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every kernel on every stack over the full set of shapes: hours. A test that passed is not run again
# while its sources and its stack's driver are the same, so a run may be ended and goes on where it
# was; PART=3/8 runs one share of it. See docs/kernels.md.
conformance: $(VENV)/.dev-installed
	FERRO_CONFORMANCE=full HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope \
	  --timeout 3600 --hypothesis-seed $(SEED) -p tests.ledger --ledger build/conformance.jsonl \
	  --part $(PART) tests/kernels tests/device tests/unit/dsl/test_library.py $(PYTEST_ARGS)

bench: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[fuzz]"
	$(BIN)/python -m tests.fuzz $(TARGET) --seconds $(SECONDS)

wheel: $(VENV)/.dev-installed
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation -w dist .

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Ferro needs Python 3.11 or newer as $(PYTHON); name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: install python3-venv (Debian, Ubuntu)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cpu,intel]"
	@touch $@

$(VENV)/.dev-installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cpu,intel,plot,dev]"
	@touch $@ $(VENV)/.run-installed
