"""Shared libraries that our own linker writes: opened by the system's loader, here and (under qemu) on AArch64."""

from __future__ import annotations

import ctypes
import math
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulators import qemu_aarch64

from armillary import relay
from armillary.base.config import setting
from armillary.codegen import toolchain
from armillary.codegen.object.elf_link import Tail, link_library
from armillary.codegen.object.elf_machines import MACHINES
from armillary.codegen.object.elf_object import NotLoadable

FIRST = """
#include <math.h>
extern double twice(double);
static int calls;
int table[3] = {1, 2, 3}, zeros[1000], *second = &table[1];
const char *const names[] = {"a", "b"};
static double own(double x) { calls++; return exp(x) + twice(x) + *second + zeros[999]; }
double (*const mine)(double) = own;
double (*foreign)(double) = sin;
double apply(double x) { return mine(x) + foreign(x); }
int count(void) { return calls; }
const char *name(int i) { return names[i]; }
"""
SECOND = "double twice(double x) { return 2 * x; }"
MAIN = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    double (*apply)(double) = (double (*)(double))dlsym(library, "apply");
    const char *(*name)(int) = (const char *(*)(int))dlsym(library, "name");
    printf("%.12f %s %s %.4s\n", apply(1.0), name(1), (char *)dlsym(library, "text"), (char *)dlsym(library, "blob"));
    return dlsym(library, "own") != NULL;
}
"""
BLOB = b"tail" * 5000
NEEDED = ("libm.so.6", "libc.so.6")
CROSS, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")


def _objects(compiler: str, folder: Path, *sources: str, flags: tuple[str, ...] = ("-O2", "-fPIC")) -> list[bytes]:
    made = []
    for index, source in enumerate(sources):
        text, code = folder / f"{index}.c", folder / f"{index}.o"
        text.write_text(source)
        subprocess.run([compiler, *flags, "-c", str(text), "-o", str(code)], check=True)
        made.append(code.read_bytes())
    return made


def _library(compiler: str, architecture: str, folder: Path) -> Path:
    path = folder / "library.so"
    tail = Tail("blob", len(BLOB))
    code = _objects(compiler, folder, FIRST, SECOND)
    head = link_library(code, {"text": b"data\0"}, MACHINES[architecture], NEEDED, tail)
    path.write_bytes(head + BLOB)
    return path


def _expected(x: float) -> float:
    return math.exp(x) + 2 * x + 2 + math.sin(x)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="opens an x86-64 library")
def test_code_data_and_foreign_functions_meet(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(_library("cc", "x86_64", tmp_path)))
    library.apply.restype, library.apply.argtypes = ctypes.c_double, [ctypes.c_double]
    library.name.restype = ctypes.c_char_p
    assert library.apply(0.5) == pytest.approx(_expected(0.5))
    assert (library.count(), library.name(1)) == (1, b"b")
    assert ctypes.string_at(library.text) == b"data"
    assert bytes((ctypes.c_char * len(BLOB)).in_dll(library, "blob")) == BLOB
    assert ctypes.addressof(ctypes.c_char.in_dll(library, "blob")) % 64 == 0
    with pytest.raises(AttributeError):
        _ = library.own


@pytest.mark.skipif(not setting("CI") and not (CROSS and QEMU), reason="needs aarch64-linux-gnu-gcc and qemu-aarch64")
def test_an_aarch64_library_is_opened_by_its_own_loader(tmp_path: Path) -> None:
    path, program = _library("aarch64-linux-gnu-gcc", "aarch64", tmp_path), tmp_path / "main"
    (tmp_path / "main.c").write_text(MAIN)
    build = ["aarch64-linux-gnu-gcc", str(tmp_path / "main.c"), "-o", str(program), "-ldl", "-lm"]
    subprocess.run(build, check=True)
    command = [*qemu_aarch64(), str(program), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [f"{_expected(1.0):.12f}", "b", "data", "tail"]


def test_the_system_s_tools_read_the_library(tmp_path: Path) -> None:
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf is not there")
    path = _library("cc", "x86_64", tmp_path)
    message = subprocess.run([readelf, "-Wa", str(path)], capture_output=True, text=True, check=True)
    assert not message.stderr, message.stderr
    assert "libm.so.6" in message.stdout
    assert "Warning" not in message.stdout
    code_and_writable = [
        line for line in message.stdout.splitlines() if line.strip().startswith("LOAD") and "RWE" in line
    ]
    assert not code_and_writable


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for this machine")
@pytest.mark.parametrize(
    ("source", "flags"),
    [
        ("__thread int mine; int get(void) { return mine; }", ("-O2", "-fPIC")),
        ("extern int theirs; int get(void) { return theirs; }", ("-O2", "-fno-pic", "-mcmodel=small")),
        ("int n; static void f(void) __attribute__((constructor)); static void f(void) { n++; }", ("-O2", "-fPIC")),
    ],
    ids=["thread-local", "without-pic", "constructor"],
)
def test_what_it_does_not_know_is_refused(source: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    code = _objects("cc", tmp_path, source, flags=flags)
    with pytest.raises(NotLoadable):
        link_library(code, {}, MACHINES["x86_64"], NEEDED)


def test_an_object_for_another_machine_is_refused(tmp_path: Path) -> None:
    code = _objects("cc", tmp_path, SECOND)
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    with pytest.raises(NotLoadable, match="not a relocatable object of machine"):
        link_library(code, {}, MACHINES[other], NEEDED)


@pytest.mark.parametrize("target", ["llvm", "llvm -mtriple=x86_64-linux-gnu", "llvm -mtriple=aarch64-linux-gnu"])
@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_networks_are_exported_without_any_compiler(
    target: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_compiler", lambda *_, **__: None)
    x, w = relay.var("x", shape=(1, 8)), relay.var("w", shape=(4, 8))
    network = relay.Function([x, w], relay.nn.relu(relay.exp(relay.nn.dense(x, w))))
    library = relay.build(network, target, params={"w": np.ones((4, 8), "float32")})
    library.export_library(tmp_path / f"net.{suffix}")
    assert (tmp_path / f"net.{suffix}").stat().st_size > 1000
