"""Objects run in this process without LLVM; what the loader does not know it refuses before any code can run."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.codegen.object.elf_loader import ElfImage
from armillary.codegen.object.elf_object import NotLoadable, foreign_symbols
from armillary.codegen.object.jit import LoadedObjects, _in_process
from armillary.codegen.toolchain import compile_c
from armillary.errors import ExecutionError
from armillary.target import Target

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the loader is for x86-64")
SOURCE = """
#include <math.h>
static double table[3] = {1, 2, 3};
static int calls;
static double first(double x) { return sin(x) + table[0]; }
static double second(double x) { calls++; return x * calls; }
double (*const choices[2])(double) = {first, second};
double apply(int k, double x) { return choices[k](x); }
const char *name(void) { return "elf"; }
"""
CHILD = """
import sys
import numpy as np
import armillary
from armillary import relay
x = relay.var("x", shape=(4,))
library = relay.build(armillary.IRModule.from_expr(relay.Function([x], relay.exp(x))), target="llvm -mcpu=native")
executor = library["default"]()
executor.set_input("x", np.ones(4, np.float32))
executor.run()
np.testing.assert_allclose(executor.get_output(0).numpy(), np.full(4, np.e), rtol=1e-5)
assert "llvmlite.binding" not in sys.modules
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_c(SOURCE, tmp_path_factory.mktemp("elf") / "x.o", Target("c")).read_bytes()


def test_calls_data_tables_and_foreign_functions_work(code: bytes) -> None:
    image = ElfImage([code], _in_process)
    apply = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int, ctypes.c_double)(image.address("apply"))
    name = ctypes.CFUNCTYPE(ctypes.c_char_p)(image.address("name"))
    assert apply(0, 0.0) == 1.0
    assert name() == b"elf"
    assert image.address("calls") == 0, "static names are not given out"


def test_unknown_function_and_foreign_machine_are_refused(code: bytes) -> None:
    with pytest.raises(NotLoadable, match="sin is not in this process"):
        ElfImage([code], lambda name: 0)
    other = bytearray(code)
    other[18] = 183  # EM_AARCH64
    with pytest.raises(NotLoadable, match="not a relocatable object of machine 62"):
        ElfImage([bytes(other)], _in_process)


def test_damaged_headers_are_refused_or_loaded_but_never_crash(code: bytes) -> None:
    source = random.Random(3)
    start = int.from_bytes(code[40:48], "little")  # the section table
    for _ in range(300):
        bad = bytearray(code)
        bad[source.choice([source.randrange(64), source.randrange(start, len(bad))])] ^= 1 << source.randrange(8)
        try:
            ElfImage([bytes(bad)], _in_process)
        except NotLoadable:
            continue


def test_a_process_that_builds_and_runs_never_loads_llvm(tmp_path: Path) -> None:
    own = {"PYTHONPATH": str(ROOT), "ARMILLARY_CACHE_DIR": str(tmp_path), "ARMILLARY_COMPILE_JOBS": "1"}
    environment = {**os.environ, **own}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_loaded_gives_its_symbols(code: bytes) -> None:
    assert LoadedObjects([code], ["sin"]).address("apply") > 0


@pytest.mark.parametrize("prefix", ["", "__thread int here;"], ids=["own loader", "loaded by LLVM"])
def test_a_function_that_is_missing_in_the_process_is_named(prefix: str, tmp_path: Path) -> None:
    text = f"{prefix} double surely_missing(double); double f(double x) {{ return surely_missing(x); }}"
    code = compile_c(text, tmp_path / "m.o", Target("c")).read_bytes()
    with pytest.raises(ExecutionError, match="the code calls 'surely_missing', which is not in this process"):
        LoadedObjects([code])


def test_another_object_may_define_a_function_and_a_weak_one_may_be_missing(tmp_path: Path) -> None:
    texts = (
        "int g(int); int h(void) __attribute__((weak)); int f(int x) { return h ? 0 : g(x); }",
        "#include <math.h>\nint g(int x) { return (int)sqrt(x); }",
    )
    codes = [compile_c(t, tmp_path / f"{k}.o", Target("c")).read_bytes() for k, t in enumerate(texts)]
    assert foreign_symbols(codes) - {"sqrt"} == {"h"} and foreign_symbols(codes[:1]) == {"g", "h"}
    assert foreign_symbols([b"no object"]) == set()
    loaded = LoadedObjects(codes)
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(loaded.address("f"))(9) == 3
