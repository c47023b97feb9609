"""Decoders by token: a step with int4 weights against ONNX Runtime, interleaved, and the share of measured bandwidth.

Run: python benchmarks/decoders.py [--threads 1] [--layers 8 --hidden 512 --inner 1408] [--rounds 20] [--prefill 128]
     [--clock wall]

Writes a Llama-shaped decoder with random int4 weights in groups of 32 (MatMulNBits, GroupQueryAttention over a shared
buffer) and times one token at a position, by turns: Armillary with activations of 24, 16 and 8 bits, ONNX Runtime at
accuracy level 0 and 4. Least times of all rounds; how far logits are off those of 24 bits, by the greatest of these;
the bytes of the linear layers a second as a share of what one thread reads by numpy in between.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from decoder_files import CLOCKS
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
GROUP, CAPACITY = 32, 256


def write(path: Path, level: int, layers: int, hidden: int, inner: int, heads: int, groups: int, words: int) -> int:
    """The decoder; gives the bytes of its linear layers."""
    rng, nodes, initial, size = np.random.default_rng(0), [], [], hidden // heads
    total = 0

    def give(name: str, array: np.ndarray) -> str:
        initial.append(numpy_helper.from_array(array, name))
        return name

    def linear(x: str, name: str, depth: int, units: int) -> str:
        nonlocal total
        packed = rng.integers(0, 256, (units, depth // GROUP, GROUP // 2), dtype=np.uint8)
        scales = (rng.uniform(0.5, 1.5, (units, depth // GROUP)) * depth**-0.5 / 5).astype(np.float32)
        total += packed.nbytes + scales.nbytes
        inputs = [x, give(f"{name}.q", packed), give(f"{name}.s", scales)]
        named = {"K": depth, "N": units, "bits": 4, "block_size": GROUP, "accuracy_level": level}
        nodes.append(helper.make_node("MatMulNBits", inputs, [f"{name}.y"], name, domain=MS, **named))
        return f"{name}.y"

    def norm(x: str, name: str) -> str:
        inputs = [x, give(name, np.ones(hidden, np.float32))]
        nodes.append(helper.make_node("SimplifiedLayerNormalization", inputs, [f"{name}.y"], axis=-1, epsilon=1e-5))
        return f"{name}.y"

    def add(op: str, inputs: list[str], name: str) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name))
        return name

    angles = np.arange(2048)[:, None] / 10000 ** (np.arange(size // 2) / (size // 2))[None]
    give("cos", np.cos(angles).astype(np.float32))
    give("sin", np.sin(angles).astype(np.float32))
    ins = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "seq"])]
    ins += [helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1])]
    ins += [helper.make_tensor_value_info("total_len", TensorProto.INT32, [])]
    outs = [helper.make_tensor_value_info("head.y", TensorProto.FLOAT, [1, "seq", words])]
    x = add(
        "Gather", [give("table", (rng.standard_normal((words, hidden)) * 0.02).astype(np.float32)), "input_ids"], "x"
    )
    for n in range(layers):
        at = f"l{n}"
        a = norm(x, f"{at}.n1")
        q, k, v = (
            linear(a, f"{at}.{c}", hidden, s) for c, s in (("q", hidden), ("k", groups * size), ("v", groups * size))
        )
        caches = [[f"{w}.{n}.{c}" for c in "kv"] for w in ("past", "present")]
        for names, values in zip(caches, (ins, outs), strict=True):
            values += [helper.make_tensor_value_info(m, TensorProto.FLOAT, [1, groups, CAPACITY, size]) for m in names]
        inputs = [q, k, v, *caches[0], "seqlens_k", "total_len", "cos", "sin"]
        named = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1}
        nodes.append(helper.make_node("GroupQueryAttention", inputs, [f"{at}.a", *caches[1]], domain=MS, **named))
        x = add("Add", [x, linear(f"{at}.a", f"{at}.o", hidden, hidden)], f"{at}.x1")
        b = norm(x, f"{at}.n2")
        gate, up = (linear(b, f"{at}.{c}", hidden, inner) for c in ("g", "u"))
        act = add("Mul", [gate, add("Sigmoid", [gate], f"{at}.s")], f"{at}.act")
        x = add("Add", [x, linear(add("Mul", [act, up], f"{at}.m"), f"{at}.d", inner, hidden)], f"{at}.x2")
    linear(norm(x, "nf"), "head", hidden, words)
    graph = helper.make_graph(nodes, "decoder", ins, outs, initial)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return total


class Reader:
    """Reads memory beyond the caches, one thread by numpy: what the bandwidth of the same minutes is."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.data, self.rate, self.now = np.ones(1 << 25, np.float32), 0.0, now

    def read(self) -> None:
        """Once more; the best rate stays."""
        begin = self.now()
        self.data.max()
        self.rate = max(self.rate, self.data.nbytes / (self.now() - begin))


def onnxruntime_step(
    path: Path, threads: int, rows: int, position: int
) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    """One run of ONNX Runtime with caches bound in place."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options)
    binding, keep = session.io_binding(), []
    for value in session.get_inputs():
        if value.name.startswith("past"):
            cache = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(value.shape, np.float32))
            keep.append(cache)
            binding.bind_ortvalue_input(value.name, cache)
            binding.bind_ortvalue_output(value.name.replace("past", "present"), cache)
    feeds = {"input_ids": np.full((1, rows), 7), "seqlens_k": np.array([position + rows - 1], np.int32)}
    feeds["total_len"] = np.array(position + rows, np.int32)
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("head.y")
    del keep
    return lambda: session.run_with_iobinding(binding), lambda: binding.copy_outputs_to_cpu()[-1]  # bound last


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    for name, default in (("threads", 1), ("layers", 8), ("hidden", 512), ("inner", 1408), ("heads", 8), ("groups", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--words", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--prefill", type=int, default=0, help="rows at once instead of a token")
    parser.add_argument("--clock", default="wall", choices=sorted(CLOCKS), help="processor: one thread's, under load")
    args = parser.parse_args()
    now = CLOCKS[args.clock]
    os.environ["ARMILLARY_NUM_THREADS"] = str(args.threads)
    from armillary.generate import Generator

    rows, position = args.prefill or 1, 0 if args.prefill else 99
    sizes = (args.layers, args.hidden, args.inner, args.heads, args.groups, args.words)
    runs: dict[str, Callable[[], object]] = {}
    logits: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        for level in (0, 4):
            weights = write(path, level, *sizes)
            run, result = onnxruntime_step(path, args.threads, rows, position)
            run()
            runs[f"ONNX Runtime, level {level}"], logits[f"ONNX Runtime, level {level}"] = run, result()[0, -1]
        for bits in (24, 16, 8):
            begin = time.perf_counter()
            generator = Generator(path, chunk=rows, config={"low_bit.activation_bits": bits})
            print(f"compiled in {time.perf_counter() - begin:.1f} s")
            generator.tokens[:] = [7] * position
            logits[f"Armillary, {bits} bits"] = generator.feed([7] * rows)
            runs[f"Armillary, {bits} bits"] = generator.slots.graph.run
        best, reader = dict.fromkeys(runs, 1e9), Reader(now)
        for _ in range(args.rounds):
            reader.read()
            for name, run in runs.items():
                for _ in range(2):
                    begin = now()
                    run()
                    best[name] = min(best[name], now() - begin)
    rate = reader.rate
    print(f"{weights / 1e6:.1f} MB of linear layers, {rate / 1e9:.1f} GB/s, {args.threads} threads, {rows} rows")
    exact = logits["Armillary, 24 bits"]
    for name, seconds in best.items():
        share = weights / seconds / rate if rows == 1 else 0.0
        off = np.abs(logits[name] - exact).max() / np.abs(exact).max()
        print(f"{name:24} {1e3 * seconds:8.3f} ms  {100 * share:5.0f} % of bandwidth   logits off {off:.1e}")


if __name__ == "__main__":
    main()
