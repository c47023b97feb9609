"""The loop program by which dot products of words are tested: of four bytes, or of two bfloat16.

In: types of the numbers, the intrinsics. Out: a function of two arrays of numbers and two of sums, one word an element;
what it gives on AArch64; a product of two matrices by such words.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from emulators import need
from harness import compiled

from armillary import te
from armillary.base.dtype import DType
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S

WORDS = 48
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu="
MAIN = r"""
#include <stdint.h>
#include <stdio.h>
int32_t f0__p0(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread);
static uint32_t words[4][48]; /* left, right, sums of pairs, sums with the first */
int main(void) {
  if (fread(words, 4, 3 * 48, stdin) != 3 * 48) return 1;
  void *data[] = {words[0], words[1], words[2], words[3], 0, 0};
  return f0__p0(data, 0, 0, 3, 0) || fwrite(words[2], 4, 2 * 48, stdout) != 2 * 48;
}
"""


@dataclass(frozen=True)
class Words:
    """Words of `size` numbers: the intrinsic that joins them, the one that multiplies two, and the type of its sum."""

    size: int
    join: str
    dot: str
    sums: str

    def load(self, buffer: S.Buffer, at: E.Expr, lanes: int) -> E.Expr:
        """Word `at`, or `lanes` words from it on."""
        index = [at * self.size + k for k in range(self.size)]
        steps = B.int32(self.size)
        loads = tuple(E.BufferLoad(buffer, (i if lanes == 1 else E.Ramp(i, steps, lanes),)) for i in index)
        name = "int32" if buffer.dtype.code == "int" else "uint32"
        return E.Call(DType(name).with_lanes(lanes), self.join, loads)

    def program(self, x: str, y: str, lanes: int) -> S.PrimFunc:
        """sums[i] += dot(a[i], b[i]); one[i] = dot(a[0], b[i]); `x`, `y`: the types of a and b."""
        a, b = (S.Buffer(n, (B.int32(self.size * WORDS),), DType(t)) for n, t in (("a", x), ("b", y)))
        sums, one = (S.Buffer(n, (B.int32(WORDS),), DType(self.sums)) for n in ("sums", "one"))
        i = E.Var("i")
        at = i * lanes
        index: E.Expr = at if lanes == 1 else E.Ramp(at, B.int32(1), lanes)
        kind = DType(self.sums).with_lanes(lanes)
        first = self.load(a, B.int32(0), 1)
        wide: E.Expr = first if lanes == 1 else E.Broadcast(first, lanes)
        products = E.Call(kind, self.dot, (self.load(a, at, lanes), self.load(b, at, lanes)))
        body = S.seq(
            S.BufferStore(sums, E.Add(E.BufferLoad(sums, (index,)), products), (index,)),
            S.BufferStore(one, E.Call(kind, self.dot, (wide, self.load(b, at, lanes))), (index,)),
        )
        loop = S.For(i, B.int32(0), B.int32(WORDS // lanes), S.LoopKind.PARALLEL, body)
        return S.PrimFunc((a, b, sums, one), loop)

    def emulated(self, x: str, y: str, cpu: str, arrays: list[Any], folder: Path) -> Any:  # Any: numpy arrays
        """Both sums that the program of 16 lanes gives on an AArch64 processor, under qemu."""
        need("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
        module = compiled([self.program(x, y, 16)], ARM + cpu)
        (folder / "main.c").write_text(MAIN)
        (folder / "k.o").write_bytes(module.objects[0])
        command = ["aarch64-linux-gnu-gcc", "-static", "-O1", "main.c", "k.o", "-o", "run"]
        subprocess.run(command, cwd=folder, check=True)
        given = b"".join(v.tobytes() for v in arrays[:3])
        run_it = ["qemu-aarch64-static", "-cpu", "max", "run"]
        done = subprocess.run(run_it, cwd=folder, input=given, capture_output=True, check=True)
        return np.frombuffer(done.stdout, self.sums).reshape(2, WORDS)


def product_of_rows(
    x: str, y: str, size: int, term: Callable[[list[Any], list[Any]], Any], vector: bool
) -> tuple[te.Schedule, list[te.Tensor]]:  # Any: expressions
    """(3, 8) times (8, 16) by words of `size` numbers, those of the right side from as many rows."""
    a, b = te.placeholder((3, 8), x, "a"), te.placeholder((8, 16), y, "b")
    k = te.reduce_axis((0, 8 // size), "k")

    def element(i: Any, j: Any) -> Any:
        places = [k * size + n for n in range(size)]
        return te.sum(term([a(i, at) for at in places], [b(at, j) for at in places]), axis=k)

    c = te.compute((3, 16), element, "c")
    schedule = te.create_schedule(c.op)
    if vector:
        schedule[c].vectorize(c.op.axis[1])
    return schedule, [a, b, c]
