"""Products of few rows on an OpenCL device: with how much of the memory's bandwidth they read their weights.

    python benchmarks/gpu_rows.py [--device 0] [--sizes 4096x4096,4096x14336,14336x4096] [--rows 1] [--target opencl]

In: sizes (terms x columns). Out: for float32, float16, and four bits in groups of 32 with scales in float32 and in
float16, microseconds of a product, its launch among them, GB/s of weights and scales, the error relative to the
largest value (against numpy in float64), and the kernels' own time by the device's clock. Each size has so many
products, with data of their own, as no cache holds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from adreno_products import call_of
from numpy.typing import NDArray

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.expr import Expr, Function
from armillary.transform import PassContext

GROUP, SEED, IN_A_ROW, ROUNDS = 32, 5, 10, 20
UNCACHED = 256 << 20  # bytes of weights that no cache holds
KINDS = ("float32", "float16", "int4/float32", "int4/float16")


class Weights(NamedTuple):
    """The arrays of a layer, and what they stand for."""

    arrays: tuple[NDArray[np.generic], ...]
    values: NDArray[np.floating]


def weights_of(kind: str, terms: int, columns: int, random: np.random.Generator) -> Weights:
    """Drawn weights of a layer."""
    if not kind.startswith("int4"):
        values = random.standard_normal((columns, terms), "float32").astype(kind)
        return Weights((values,), values)
    packed = random.integers(0, 256, (columns, terms // 2), "uint8")
    scales = random.random((columns, terms // GROUP), "float32").astype(kind.removeprefix("int4/"))
    numbers = np.stack([packed & 15, packed >> 4], -1).reshape(columns, -1, GROUP)
    values = ((numbers - 8.0) * scales[..., None].astype("float64")).reshape(columns, terms)
    return Weights((packed, scales, np.full((1, 1), 8, "uint8")), values)


def product(kind: str, x: Expr, weights: Weights) -> Expr:
    """One layer."""
    constants = [relay.const(array) for array in weights.arrays]
    if kind.startswith("int4"):
        return call_of("nn.low_bit_dense", [x, *constants], bits=4, group=GROUP)
    dense: Expr = relay.nn.dense(x, constants[0], out_dtype=kind)
    return dense


def measure(kind: str, rows: int, terms: int, columns: int, args: argparse.Namespace) -> str:
    """A line of the table."""
    random, dtype = np.random.default_rng(SEED), kind.removeprefix("int4/")
    first = weights_of(kind, terms, columns, random)
    size = sum(array.nbytes for array in first.arrays)
    count = max(2, args.bytes // size)
    layers = [first, *(weights_of(kind, terms, columns, random) for _ in range(min(3, count) - 1))]
    inputs = [relay.var(f"x{n}", shape=(rows, terms), dtype=dtype) for n in range(count)]
    copies = [Weights(tuple(a.copy() for a in layers[n % len(layers)].arrays), first.values) for n in range(count)]
    results = [product(kind, x, weights) for x, weights in zip(inputs, copies, strict=True)]
    with PassContext(opt_level=3):
        library = relay.build(Function(inputs, relay.Tuple(results)), args.target)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl(args.device)))
    x = random.standard_normal((rows, terms), "float32").astype(dtype)
    for variable in inputs:
        graph.set_input(variable.name_hint, x)
    graph.run()
    wanted = x.astype("float64") @ first.values.T.astype("float64")
    error = float(np.abs(graph.get_output(0).numpy() - wanted).max() / np.abs(wanted).max())
    graph.module.time(1)
    seconds = statistics.median(graph.module.time(IN_A_ROW) for _ in range(ROUNDS)) / IN_A_ROW / count
    alone = sum(row.seconds for row in graph.module.profile()) / count
    rates = " | ".join(f"{1e6 * s:.1f} | {size / s / 1e9:.0f}" for s in (seconds, alone))
    return f"| {kind} | {rows} x {terms} x {columns} | {rates} | {error:.0e} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--sizes", default="4096x4096,4096x14336,14336x4096")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--bytes", type=int, default=UNCACHED, help="of weights, at least (default: 256 MB)")
    args = parser.parse_args()
    print("| weights | product | us | GB/s | us, alone | GB/s, alone | error |\n|---|---|---|---|---|---|---|")
    for size in args.sizes.split(","):
        terms, columns = map(int, size.split("x"))
        for kind in args.kinds.split(","):
            print(measure(kind, args.rows, terms, columns, args), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
