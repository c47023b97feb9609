"""Networks with open sizes on an OpenCL device: compiled once, right at every size, wherever they run.

The truth is numpy in float64.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import armillary
from armillary import relay, rpc
from armillary.base.extent import Extent, size
from armillary.contrib import graph_executor
from armillary.contrib.cc import get_cc
from armillary.errors import ArmillaryError
from armillary.relay.expr import Expr, Var
from tests.opencl_device import needs_opencl

pytestmark = needs_opencl
Values = NDArray[np.float64]
Case = tuple[list[Var], Expr, Callable[..., Values]]  # inputs, a network of them, and what it computes
COUNTS = (1, 3, 17, 2, 65, 3)
HINTS = (0, 128)  # typical sizes for which one-by-one sums and tiles are chosen
_RNG = np.random.default_rng(3)
K = _RNG.standard_normal((48, 64)).astype(np.float32)
FILTER = _RNG.standard_normal((8, 6, 3, 3)).astype(np.float32)


def _library(case: Case, target: str = "opencl") -> Any:
    inputs, result, _ = case
    return relay.build(armillary.IRModule.from_expr(relay.Function(inputs, result)), target)


def _drawn(inputs: list[Var], n: int) -> dict[str, NDArray[np.float32]]:
    """Values of inputs where the sizes n, t, h, w have some values that differ."""
    sizes = {"n": n, "t": 2 * n + 1, "h": n + 7, "w": n + 8}

    def known(dim: object) -> int:
        return eval(str(dim), {}, sizes) if isinstance(dim, Extent) else int(str(dim))

    shapes = {v.name_hint: tuple(map(known, v.type_annotation.shape)) for v in inputs}
    return {name: _RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _check(case: Case, run: Callable[[dict[str, Any]], Any]) -> None:
    for n in COUNTS:
        values = _drawn(case[0], n)
        wanted = case[2](*(v.astype(np.float64) for v in values.values()))
        got = run(values)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-6 * max(1.0, float(np.abs(wanted).max(initial=0))))


def _softmax(x: Values) -> Values:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)  # type: ignore[no-any-return]


def _convolved(x: Values) -> Values:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, FILTER.astype(np.float64)), 0)


def _cases(hint: int) -> dict[str, Case]:
    n, t, h, w = (size(name, hint=hint or 16 * (name in "hw")) for name in "nthw")
    rows, cube = relay.var("x", shape=(n, 64)), relay.var("x", shape=(n, 6, 64))
    wide, image = relay.var("x", shape=(n, t)), relay.var("x", shape=(n, 6, h, w))
    q, k = relay.var("q", shape=(2, n, 64)), relay.var("k", shape=(2, t, 64))
    scores = relay.nn.softmax(relay.nn.batch_matmul(q, k) * relay.const(0.125))
    one, scale = relay.const(np.ones(64, np.float32)), relay.const(np.float32(0.5))
    dense = relay.nn.relu(relay.nn.dense(rows, relay.const(K)))
    conv = relay.nn.relu(relay.nn.conv2d(image, relay.const(FILTER), strides=(2, 2), padding=(1, 1)))
    return {
        "elementwise": ([wide], relay.tanh(wide) * scale + wide, lambda x: np.tanh(x) * 0.5 + x),
        "dense": ([rows], dense, lambda x: np.maximum(x @ K.T.astype(np.float64), 0)),
        "softmax": ([wide], relay.nn.softmax(wide), _softmax),
        "sum": ([wide], relay.sum(wide, axis=[1]), lambda x: x.sum(1)),
        "layer_norm": (
            [cube],
            relay.nn.layer_norm(cube, one, one),
            lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) + 1,
        ),
        "attention": (
            [q, k],
            relay.nn.batch_matmul(scores, k, transpose_b=False),
            lambda a, b: _softmax(a @ b.transpose(0, 2, 1) * 0.125) @ b,
        ),
        "conv2d": ([image], conv, _convolved),
        "max_pool2d": (
            [image],
            relay.nn.max_pool2d(image, (2, 2), (2, 2)),
            lambda x: (
                x[:, :, : x.shape[2] // 2 * 2, : x.shape[3] // 2 * 2]
                .reshape(x.shape[0], 6, x.shape[2] // 2, 2, x.shape[3] // 2, 2)
                .max((3, 5))
            ),
        ),
        "concatenate": ([rows], relay.concatenate([rows, rows * scale], axis=0), lambda x: np.concatenate([x, x / 2])),
    }


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("name", _cases(0))
def test_one_compile_is_right_at_every_size(name: str, hint: int) -> None:
    case = _cases(hint)[name]
    graph = graph_executor.GraphModule(_library(case)["default"](armillary.opencl(0)))

    def run(values: dict[str, Any]) -> Any:
        graph.run(**values)
        return graph.get_output(0).numpy()

    _check(case, run)


def test_in_the_native_runner_and_over_rpc(built_runner: Callable[..., Path], tmp_path: Path) -> None:
    case, package = _cases(128)["attention"], tmp_path / "net.tar"
    _library(case).export_library(str(package))
    runner, out = built_runner(get_cc()), tmp_path / "out.npz"

    def natively(values: dict[str, Any]) -> Any:
        np.savez(tmp_path / "in.npz", **values)
        words = [runner, f"--model={package}", "--device=opencl", f"--input={tmp_path / 'in.npz'}", f"--output={out}"]
        subprocess.run([str(word) for word in words], check=True, timeout=120, capture_output=True)
        with np.load(out) as found:
            return next(iter(found.values()))

    _check(case, natively)
    server = rpc.Server("127.0.0.1", 0)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        session.upload(str(package))
        graph = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cl(0)))

        def remotely(values: dict[str, Any]) -> Any:
            for name, value in values.items():
                graph.set_input(name, value)
            graph.run()
            return graph.get_output(0).numpy()

        _check(case, remotely)
    finally:
        server.terminate()


def test_many_sizes_in_turn_leave_no_parts_of_memory_behind() -> None:
    case = _cases(128)["attention"]
    graph = graph_executor.GraphModule(_library(case)["default"](armillary.opencl(0)))

    def resident() -> int:
        match = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
        assert match is not None, "Linux says how much memory a process has"
        return int(match[1])

    sizes = [int(n) for n in np.random.default_rng(5).integers(1, 40, 600)]
    grown = []
    for part in (sizes[:300], sizes[300:]):
        for n in part:
            graph.run(**_drawn(case[0], n))
        grown.append(resident())
    assert grown[1] - grown[0] < 8 * 1024, f"{grown} KB after 300 and 600 runs"


def test_sizes_that_disagree_or_lie_outside_their_bounds_are_named() -> None:
    n = size("n", low=1, high=8)
    x, y = relay.var("x", shape=(n, 4)), relay.var("y", shape=(n, 4))
    graph = graph_executor.GraphModule(_library(([x, y], x + y, np.add))["default"](armillary.opencl(0)))
    with pytest.raises(ArmillaryError, match="axis 0 is n = 9, which lies outside its bounds 1 to 8"):
        graph.set_input("x", np.zeros((9, 4), np.float32))
    graph.set_input("x", np.zeros((3, 4), np.float32))
    graph.set_input("y", np.zeros((4, 4), np.float32))
    with pytest.raises(ArmillaryError, match="disagree on the size n: 3 and 4"):
        graph.run()
