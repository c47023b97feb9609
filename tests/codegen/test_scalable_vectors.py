"""Loops that nobody vectorised, for processors with SVE: LLVM finds vectors whose length the machine decides."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulators import need
from harness import compiled

import armillary
from armillary import te
from armillary.tir.lower import lower_function
from armillary.transform import PassContext

SVE = "llvm -mtriple=aarch64-linux-gnu -mattr=+sve"
SIZE = 1003
MAIN = r"""
#include <stdint.h>
#include <stdio.h>
int32_t f0__p0(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread);
static float given[2][1003], made[1003];
int main(void) {
  if (fread(given, 4, 2 * 1003, stdin) != 2 * 1003) return 1;
  void *data[] = {given[0], given[1], made, 0, 0};
  return f0__p0(data, 0, 0, 1, 0) || fwrite(made, 4, 1003, stdout) != 1003;
}
"""


def schedule(body: Callable[..., te.Expr], dtype: str = "float32") -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = (te.placeholder((SIZE,), dtype, name=name) for name in "ab")
    c = te.compute((SIZE,), lambda i: body(a[i], b[i]), name="c")
    return te.create_schedule(c.op), [a, b, c]


@pytest.mark.parametrize(("dtype", "letter"), [("float32", "w"), ("float16", "h"), ("uint8", "b"), ("int64", "d")])
def test_scalar_loops_become_vectors_of_sve(dtype: str, letter: str) -> None:
    text = armillary.build(*schedule(lambda x, y: x * y, dtype), SVE).get_source("asm")
    assert len(re.findall(rf"ld1{letter}\t{{ z|ldr\tz", text)) >= 2
    assert re.search(r"mul\tz\d+", text)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 4), ("float16", 8)])
def test_extremes_of_floats_are_vectors_of_sve_too(dtype: str, lanes: int) -> None:
    library = armillary.build(*schedule(te.max, dtype), SVE)
    assert f'"llvm.loop.vectorize.width", i32 {lanes}' in library.get_source("ll")
    assert re.search(r"fmax\tz\d+", library.get_source("asm"))


def test_only_functions_without_vectors_are_left_to_llvm() -> None:
    s, args = schedule(lambda x, y: x * y)
    for target, marked in ((SVE, True), ("llvm -mtriple=aarch64-linux-gnu", False)):
        text = armillary.build(s, args, target).get_source("ll")
        assert ("vectorize.scalable.enable" in text, "vscale_range(1,16)" in text) == (marked, marked)
    _, inner = s[args[2]].split(args[2].op.axis[0], 4)
    s[args[2]].vectorize(inner)
    with PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):  # else the tail keeps it scalar
        assert "vectorize.scalable.enable" not in armillary.build(s, args, SVE).get_source("ll")


@pytest.mark.parametrize("length", [128, 512])
def test_any_length_of_vector_gives_the_same(length: int, tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
    s, args = schedule(lambda x, y: te.if_then_else(x > y, x * y, x - y * 2.0))
    module = compiled([lower_function(te.lower_schedule(s, args))], SVE)
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "k.o").write_bytes(module.objects[0])
    command = ["aarch64-linux-gnu-gcc", "-static", "-O1", "main.c", "k.o", "-o", "run"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x, y = np.random.default_rng(0).standard_normal((2, SIZE)).astype(np.float32)
    run_it = ["qemu-aarch64-static", "-cpu", f"max,sve-max-vq={length // 128}", "run"]
    given = x.tobytes() + y.tobytes()
    done = subprocess.run(run_it, cwd=tmp_path, input=given, capture_output=True, check=True)
    got = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(got, np.where(x > y, x * y, x - y * 2), rtol=1e-6, atol=1e-6)
