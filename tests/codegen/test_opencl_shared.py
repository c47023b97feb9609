"""Kernels of a network that differ in sizes alone are one kernel with arguments."""

from __future__ import annotations

import re

import numpy as np
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.artifact import FunctionRow
from armillary.artifact.launches import LaunchRow
from armillary.codegen.opencl.program import MOST_NUMBERS, shared_program
from armillary.contrib import graph_executor
from armillary.ir import IRModule
from armillary.transform import PassContext

RNG = np.random.default_rng(11)


def _function(name: str, body: str) -> tuple[FunctionRow, str]:
    symbol = f"tvmgen_default_{name}_kernel0"
    head = f"__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void {symbol}(__global float* restrict a)"
    launch = LaunchRow(symbol, (("tensor", 0),), (1, 1, 1), (64, 1, 1))
    return FunctionRow(name, (), (), launches=(launch,)), f"{head} {{\n{body}\n}}\n"


def _shared(*bodies: str) -> tuple[list[LaunchRow], str]:
    names = [f"f_{n:08x}" for n in range(len(bodies))]
    rows, text = shared_program({name: _function(name, body) for name, body in zip(names, bodies, strict=True)})
    return [rows[name].launches[0] for name in names], text


def test_sizes_become_arguments_and_equal_kernels_are_one() -> None:
    launches, text = _shared(*(f"  a[((x * {n}) + 7)] = a[(x + {n})];" for n in (96, 128, 96)))
    assert text.count("__kernel") == 1
    assert [launch.args for launch in launches] == [(("tensor", 0), ("number", n)) for n in (96, 128, 96)]
    assert len({launch.kernel for launch in launches}) == 1
    assert "long size_0_word" in text and "+ 7" in text, "what all have in common stays a constant"


def test_a_shared_kernel_is_each_of_the_texts_that_it_replaces() -> None:
    bodies = [f"  if ((x < {n})) {{\n    a[x] = a[((x * {m}) + {n})];\n  }}" for n, m in ((5, 9), (6, 8), (7, 9))]
    launches, text = _shared(*bodies)
    for body, launch in zip(bodies, launches, strict=True):
        values = [number for kind, *(number,) in launch.args if kind == "number"]
        written = re.sub(r"size_(\d+)(?!_word)\b", lambda m, v=values: str(v[int(m[1])]), text)
        assert body in written


def test_what_decides_on_the_code_stays_constant() -> None:
    for line in (
        "  a[(x / {n})] = a[(x % {n})];",
        "  float own[{n}];\n  own[0] = a[x];",
        "  float own[64];\n  a[x] = own[(x + {n})];",
        "  __local float ours[{n}];",
        "  for (int k = 0; k < {n}; ++k) {{\n    a[x] = a[k];\n  }}",
        "#pragma unroll {n}",
        "  a[x] = 0x1.8p+{n}f;",
    ):
        launches, text = _shared(line.format(n=4), line.format(n=8))
        assert text.count("__kernel") == 2 and len(launches[0].args) == 1, line


def test_long_loops_and_turns_take_their_ends() -> None:
    for form in ("for (int k = 0; k < {n}00; ++k) {{", "for (int turn = 0; turn < {n}; ++turn) {{"):
        _, text = _shared(*(f"  {form.format(n=n)}\n    a[x] = a[k];\n  }}" for n in (4, 8)))
        assert text.count("__kernel") == 1, form


def test_kernels_that_differ_in_many_sizes_stay_apart() -> None:
    first = " + ".join(f"a[(x + {n})]" for n in range(10, 10 + MOST_NUMBERS + 1))
    second = " + ".join(f"a[(x + {n})]" for n in range(90, 90 + MOST_NUMBERS + 1))
    _, text = _shared(f"  a[x] = {first};", f"  a[x] = {second};")
    assert text.count("__kernel") == 2


@needs_opencl
def test_convolutions_of_more_and_more_channels_are_one_program_that_is_right() -> None:
    x = relay.var("x", shape=(1, 256, 14, 14))
    flow, inputs = x, 256
    for _ in range(4):
        weight = relay.const((RNG.standard_normal((32, inputs, 1, 1)) / inputs).astype("float32"))
        grown = relay.nn.relu(relay.nn.conv2d(flow, weight, channels=32, kernel_size=(1, 1)))
        flow, inputs = relay.concatenate([flow, grown], 1), inputs + 32
    module = IRModule.from_expr(relay.Function([x], flow))
    with PassContext(opt_level=3):
        library = relay.build(module, "opencl")
        wanted_library = relay.build(module, "llvm")
    rows = library.get_lib().descriptor.functions.values()
    numbers = [arg for row in rows for launch in row.launches for arg in launch.args if arg[0] == "number"]
    assert numbers, "some kernels of these layers are one"
    value = RNG.standard_normal((1, 256, 14, 14)).astype("float32")
    results = []
    for built, device in ((library, armillary.opencl()), (wanted_library, armillary.cpu())):
        graph = graph_executor.GraphModule(built["default"](device))
        for _ in range(2):
            graph.run(x=value)
        results.append(graph.get_output(0).numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
