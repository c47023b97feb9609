# `make demo` compiles and runs a network on this CPU; `make test` runs the tests; `make fuzz MINUTES=5` looks for more.
# Each builds its own virtual environment under .venv/ and needs Python >= 3.10, pip and a C compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD_FILES := pyproject.toml setup.py $(wildcard build_backend/*.py armillary/runtime/native/* armillary/runtime/native/*/*)

# Bytecode is written, whatever the environment says: the tests start hundreds of interpreters, each of which would else
# translate the package again (0.9 s of processor time for a compile worker, 0.3 s with it).
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test tests tiny fuzz lint docs clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: tests lint

# Of long lists of cases a share, which a fresh seed draws and the last line names; DRAW= runs all of them.
DRAW ?= fresh
tests: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow" $(if $(DRAW),--draw=$(DRAW)) tests

tiny: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q tests/tiny

# Random graphs, models and packages for some minutes; SEED=… repeats a run, otherwise a fresh seed is drawn and printed.
MINUTES ?= 5
JOBS ?= 2
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m tests.fuzz.fuzz --minutes $(MINUTES) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

# The site of these pages, in build/site; a dead link is an error.
docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: $(BIN)/python $(BUILD_FILES)
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.installed-test: $(BIN)/python $(BUILD_FILES)
	$(BIN)/python -m pip install --quiet -e '.[test]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info armillary/runtime/*.so
