# Two commands: `make demo` compiles and runs a network on this CPU; `make test` runs every test.
# Each builds its own virtual environment under .venv/ and needs Python >= 3.10, pip and a C compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find armillary build_backend -type f -not -name '*.pyc' -not -name '*.so' 2>/dev/null) pyproject.toml

.PHONY: demo test lint clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal tests
	$(BIN)/ruff check .
	$(BIN)/mypy

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet .
	touch $@

$(VENV)/.installed-test: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
