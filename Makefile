# Compiles the native parts; everything else goes through pip.
PYTHON ?= python3
CC ?= cc
BUILD := import sys; sys.path.insert(0, "armillary/runtime"); import build_native as b; from pathlib import Path

.PHONY: install native runner

install:
	$(PYTHON) -m pip install -e .

native:
	$(PYTHON) -c '$(BUILD); print(b.build_library("$(CC)".split(), Path("armillary/runtime") / b.library_name()))'

runner:
	$(PYTHON) -c '$(BUILD); print(b.build_runner("$(CC)".split(), Path("build/armrun")))'
