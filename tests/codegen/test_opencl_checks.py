"""Values that kernels of OpenCL devices refuse: the errors that the CPU has, in buffers and in textures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from armillary.contrib.debugger import debug_executor
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from opencl_device import needs_opencl

import armillary
from armillary import relay, te
from armillary.base.c_compiler import find_compiler
from armillary.base.dtype import DType
from armillary.contrib import graph_executor
from armillary.driver.library import GraphLibrary
from armillary.errors import ExecutionError
from armillary.frontend import from_onnx
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.transform import PassContext

TARGETS = ("opencl", "opencl -device=adreno")
X = np.arange(12, dtype=np.float32).reshape(3, 4)
I32, I64 = np.int32, np.int64
Values = list[np.ndarray]
# operator, attributes, inputs, where in the second one the lowest and the highest are, these, and what errors call it
Check = tuple[str, dict[str, Any], Values, tuple[int, ...], tuple[int, int], str]
CHECKS: dict[str, Check] = {
    "gather": ("Gather", {}, [X, np.array([0, 2, -3], I64)], (1,), (-3, 2), "index"),
    "gather, axis 1": ("Gather", {"axis": 1}, [X, np.array([0, 3], I32)], (0,), (-4, 3), "index"),
    "elements": (
        "GatherElements",
        {"axis": 1},
        [X, np.array([[3, 0], [1, -4], [2, 2]], I32)],
        (1, 1),
        (-4, 3),
        "index",
    ),
    "gather nd": ("GatherND", {}, [X, np.array([[0, 3], [2, -4]], I64)], (1, 1), (-4, 3), r"index \(component 1\)"),
    "scatter elements": (
        "ScatterElements",
        {},
        [X, np.array([[1, 0]], I32), np.ones((1, 2), "float32")],
        (0, 1),
        (-3, 2),
        "index",
    ),
    "scatter nd": (
        "ScatterND",
        {},
        [X, np.array([[1], [-3]], I64), np.ones((2, 4), "float32")],
        (0, 0),
        (-3, 2),
        "index",
    ),
    "reverse": (
        "ReverseSequence",
        {"time_axis": 1, "batch_axis": 0},
        [X, np.array([1, 4, 2], I64)],
        (2,),
        (0, 4),
        "length of a sequence",
    ),
}
DIVISIONS = [("Div", I32), ("Div", I64), ("Mod", I32), ("Mod", I64)]


def network(op: str, attributes: dict[str, Any], values: Values, weight: np.ndarray | None = None) -> ModelProto:
    """One node, all of whose inputs are the graph's; with a weight, the first is a convolution's result."""
    names = [f"i{k}" for k in range(len(values))]
    types = [(helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for v in values]
    nodes = [helper.make_node(op, names, ["y"], name="the_node", **attributes)]
    stored = []
    if weight is not None:
        stored = [numpy_helper.from_array(weight, "w")]
        nodes.insert(0, helper.make_node("Conv", ["x", "w"], ["i0"], kernel_shape=weight.shape[2:]))
        names[0] = "x"
    inputs = [helper.make_tensor_value_info(name, *ty) for name, ty in zip(names, types, strict=True)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", types[0][0], None)], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(made: ModelProto, target: str, strict: str = "auto", level: int = 3) -> GraphLibrary:
    with PassContext(opt_level=level, config={"strict.values": strict}):
        return relay.build(from_onnx(made)[0], target)


def on_device(library: GraphLibrary) -> graph_executor.GraphModule:
    return graph_executor.GraphModule(library["default"](armillary.opencl()))


def result(module: Any, made: ModelProto, values: Values) -> np.ndarray:
    module.run(**{info.name: value for info, value in zip(made.graph.input, values, strict=True)})
    found: np.ndarray = module.get_output(0).numpy()
    return found


def wanted(made: ModelProto, values: Values) -> np.ndarray:
    feed = {info.name: value for info, value in zip(made.graph.input, values, strict=True)}
    found: np.ndarray = ReferenceEvaluator(made).run(None, feed)[0]
    return found


def wrong(values: Values, place: tuple[int, ...], value: int) -> Values:
    changed = values[1].copy()
    changed[place] = value
    return [values[0], changed, *values[2:]]


@needs_opencl
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CHECKS)
def test_a_position_out_of_range_ends_the_run_and_the_next_is_right(name: str, target: str) -> None:
    op, attributes, values, place, (low, high), what = CHECKS[name]
    made = network(op, attributes, values)
    module = on_device(compiled(made, target))
    for bad in (high + 1, low - 1, np.iinfo(values[1].dtype).max, np.iinfo(values[1].dtype).min):
        with pytest.raises(
            ExecutionError, match=rf"node the_node\S*: .*{op}: {what} {bad} is not in \[{low}, {high}\]"
        ):
            result(module, made, wrong(values, place, int(bad)))
        np.testing.assert_array_equal(result(module, made, values), wanted(made, values))


@needs_opencl
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("op", "dtype"), DIVISIONS)
def test_a_divisor_of_0_ends_the_run(op: str, dtype: Any, target: str) -> None:
    values: Values = [np.array([7, -8, 9], dtype), np.array([2, 3, -1], dtype)]
    made = network(op, {}, values)
    module = on_device(compiled(made, target))
    with pytest.raises(ExecutionError, match=rf"node the_node\S*: .*{op}: divisor 0 is not allowed"):
        result(module, made, wrong(values, (1,), 0))
    truth = [3, -2, -9] if op == "Div" else [1, 1, 0]  # ONNX Runtime's; the reference divides with floor
    np.testing.assert_array_equal(result(module, made, values), truth)


@needs_opencl
@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
def test_channels_in_textures_are_checked(op: str) -> None:
    rng = np.random.default_rng(3)
    image, weight = rng.random((1, 4, 6, 6), "float32"), rng.random((8, 4, 1, 1), "float32")
    places = np.array([7, 0, -8, 3], I64) if op == "Gather" else rng.integers(-8, 8, (1, 5, 6, 6))
    made = network(op, {"axis": 1}, [image, places], weight)
    library = compiled(made, "opencl -device=adreno", "always")
    assert "image2d_t" in library.get_source("cl")
    module = on_device(library)
    at = (0,) * places.ndim
    with pytest.raises(ExecutionError, match=rf"{op}: index 8 is not in \[-8, 7\]"):
        result(module, made, wrong([image, places], at, 8))
    np.testing.assert_allclose(result(module, made, [image, places]), wanted(made, [image, places]), rtol=1e-5)


@needs_opencl
@pytest.mark.parametrize("level", [0, 3])
def test_many_rows_are_checked_and_one_of_the_wrong_ones_is_told(level: int) -> None:
    places = np.zeros((300, 300), I64)
    places[7, 250], places[299, 299] = 300, 400
    made = network("GatherElements", {"axis": 1}, [np.zeros((300, 300), "float32"), places])
    module = on_device(compiled(made, "opencl", "always", level))
    with pytest.raises(ExecutionError, match=r"index (300|400) is not in \[-300, 299\]"):
        result(module, made, [np.zeros((300, 300), "float32"), places])


@needs_opencl
def test_a_check_that_is_switched_off_leaves_nothing_behind() -> None:
    op, attributes, values, place, (_, high), _ = CHECKS["gather"]
    made = network(op, attributes, values)
    library = compiled(made, "opencl", "never")
    assert "status" not in library.get_source("cl")
    assert not any(row.asserts for row in library.descriptor.functions.values())
    assert result(on_device(library), made, wrong(values, place, high + 1)).shape == (3, 4)


@needs_opencl
def test_the_error_is_of_the_node_and_of_the_network_that_refused() -> None:
    """Two nodes of one kernel, in two networks on one device."""
    x, a, b = relay.var("x", shape=(5, 3)), *(relay.var(n, shape=(2,), dtype="int64") for n in "ab")
    parts = [relay.take(x, relay.check_values(n, [(-5, 4)], "rows"), axis=0, mode="wrap") for n in (a, b)]
    function = relay.Function([x, a, b], relay.concatenate(parts, 0))
    library = relay.build(armillary.IRModule.from_expr(function), "opencl")
    one, other = on_device(library), on_device(library)
    fine, bad = np.array([0, 4], I64), np.array([1, 5], I64)
    data = np.random.default_rng(0).random((5, 3), "float32")
    message = []
    for places in ({"a": fine, "b": bad}, {"a": bad, "b": fine}):
        with pytest.raises(ExecutionError, match=r"rows 5 is not in \[-5, 4\]") as caught:
            one.run(x=data, **places)
        message.append(str(caught.value).partition(":")[0])
        other.run(x=data, a=fine, b=fine)
        np.testing.assert_array_equal(other.get_output(0).numpy(), data[[0, 4, 0, 4]])
    assert message[0] != message[1]


@needs_opencl
def test_parts_of_a_run_and_times_and_debuggers_tell_it_too() -> None:
    op, attributes, values, place, (_, high), _ = CHECKS["gather"]
    made = network(op, attributes, values)
    library = compiled(made, "opencl")
    device, bad = armillary.opencl(), dict(zip(("i0", "i1"), wrong(values, place, high + 1), strict=True))
    module = on_device(library)
    module.set_input(**bad)
    with pytest.raises(ExecutionError, match="index 3"):
        module.module.time_evaluator("run", device, number=3)()
    with pytest.raises(ExecutionError, match="index 3"):
        module.benchmark(device, number=2)
    debugger = debug_executor.create(library.graph_json, library, device)
    debugger.set_input(**bad)
    with pytest.raises(ExecutionError, match="index 3"):
        debugger.run()
    machine = relay.create_executor("vm", from_onnx(made)[0], device, "opencl").evaluate()
    with pytest.raises(ExecutionError, match="index 3"):
        machine(*bad.values())
    np.testing.assert_array_equal(machine(*values).numpy(), wanted(made, values))


LOADS = """
import sys
import numpy as np
import armillary
module = armillary.contrib.graph_executor.GraphModule(
    armillary.runtime.load_module(sys.argv[1])["default"](armillary.opencl()))
for place in (3, 2):
    try:
        module.run(i0=np.ones((3, 4), "float32"), i1=np.array([0, place, -3]))
        print(module.get_output(0).numpy().sum())
    except armillary.errors.ExecutionError as error:
        print(error)
"""


@needs_opencl
def test_packages_tell_it_in_another_process_and_in_the_native_runner(
    tmp_path: Path, built_runner: Callable[..., Path]
) -> None:
    op, attributes, values, place, (_, high), _ = CHECKS["gather"]
    compiled(network(op, attributes, values), "opencl").export_library(tmp_path / "net.tar")
    command = [sys.executable, "-c", LOADS, str(tmp_path / "net.tar")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    first, second = done.stdout.splitlines()
    assert "Gather: index 3 is not in [-3, 2]" in first and float(second) == 12
    runner = built_runner(find_compiler())
    for given, code in ((wrong(values, place, high + 1), 1), (values, 0)):
        np.savez(tmp_path / "in.npz", **{f"i{k}": v for k, v in enumerate(given)})
        words = ["--device=opencl", f"--input={tmp_path / 'in.npz'}", f"--output={tmp_path / 'out.npz'}"]
        command = [str(runner), f"--model={tmp_path / 'net.tar'}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode != 0) == bool(code), done.stderr
        assert ("index 3 is not in [-3, 2]" in done.stderr) == bool(code), done.stderr
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["output_0"], X[[0, 2, -3]])


def guarded(n: int, extent: int) -> Any:
    """b[i] = a[places[i]], where an assert says that the place is in a."""

    def body(ins: list[S.Buffer], outs: list[S.Buffer]) -> S.Stmt:
        i = E.Var("i", DType("int32"))
        place = E.BufferLoad(ins[1], (i,))
        copy = S.BufferStore(outs[0], E.BufferLoad(ins[0], (place,)), (i,))
        inside = T.logical_and(T.greater_equal(place, 0), T.less(place, extent))
        return S.For(i, T.const(0), T.const(n), S.LoopKind.PARALLEL, S.AssertStmt(inside, "no such place", copy))

    a, places = te.placeholder((extent,), name="a"), te.placeholder((n,), "int32", name="places")
    b = te.extern([(n,)], [a, places], body, name="b", dtype=["float32"])
    return armillary.build(te.create_schedule(b.op), [a, places, b], "opencl", name="guarded")


@needs_opencl
def test_an_assert_of_a_function_guards_what_stands_inside() -> None:
    library, device = guarded(100, 8), armillary.opencl()
    a, places = np.arange(8, dtype="float32") + 1, np.arange(100, dtype=I32) % 8
    out = armillary.nd.array(np.full(100, -1, "float32"), device)
    bad = places.copy()
    bad[3], bad[70] = 1 << 30, -(1 << 30)
    with pytest.raises(ExecutionError, match="guarded: no such place"):
        library(armillary.nd.array(a, device), armillary.nd.array(bad, device), out)
    np.testing.assert_array_equal(out.numpy(), np.where(bad == places, a[places], -1))
    library(armillary.nd.array(a, device), armillary.nd.array(places, device), out)
    np.testing.assert_array_equal(out.numpy(), a[places])


def around(condition: Callable[[list[S.Buffer]], E.Expr], n: Any, in_group: bool = False) -> Any:
    """b = a + 1, or of each group of four its elements in turn by shared memory; all of it inside an assert."""

    def body(ins: list[S.Buffer], outs: list[S.Buffer]) -> S.Stmt:
        i, k, j = (E.Var(name, DType("int32")) for name in "ikj")
        if not in_group:
            more = S.BufferStore(outs[0], T.add(E.BufferLoad(ins[0], (i,)), T.const(1.0, "float32")), (i,))
            whole: S.Stmt = S.For(i, T.const(0), T.convert(n), S.LoopKind.PARALLEL, more)
        else:
            shared, base = S.Buffer("s", (4,), DType("float32"), scope="shared"), T.mul(i, 4)
            fill = S.BufferStore(shared, E.BufferLoad(ins[0], (T.add(base, k),)), (k,))
            turn = S.BufferStore(outs[0], E.BufferLoad(shared, (T.sub(3, j),)), (T.add(base, j),))
            rows = [
                S.For(v, T.const(0), T.const(4), S.LoopKind.THREAD, s, "threadIdx.x") for v, s in ((k, fill), (j, turn))
            ]
            groups = T.floordiv(T.convert(n), 4)
            whole = S.For(
                i, T.const(0), groups, S.LoopKind.THREAD, S.Allocate(shared, S.SeqStmt(tuple(rows))), "blockIdx.x"
            )
        return S.AssertStmt(condition([*ins, *outs]), "not now", whole)

    a, first = te.placeholder((n,), name="a"), te.placeholder((1,), "int32", name="first")
    b = te.extern([(n,)], [a, first], body, name="b", dtype=["float32"])
    return armillary.build(te.create_schedule(b.op), [a, first, b], "opencl", name="around")


@needs_opencl
@pytest.mark.parametrize("in_group", [False, True])
@pytest.mark.parametrize("of_values", [False, True])
def test_an_assert_around_a_grid_is_looked_at_before_it(of_values: bool, in_group: bool) -> None:
    size = te.var("n")
    if of_values:
        library = around(lambda b: T.greater(E.BufferLoad(b[1], (T.const(0),)), 0), 64, in_group)
    else:
        library = around(lambda b: T.less(size, 65), size, in_group)
    device = armillary.opencl()
    for n, first, fails in ((64, 1, False), (64 if of_values else 68, -1, True), (64, 2, False)):
        a, out = np.arange(n, dtype="float32"), armillary.nd.array(np.zeros(n, "float32"), device)
        given = armillary.nd.array(a, device), armillary.nd.array(np.array([first], I32), device), out
        if fails:
            with pytest.raises(ExecutionError, match="around: not now"):
                library(*given)
        else:
            library(*given)
            np.testing.assert_array_equal(out.numpy(), a.reshape(-1, 4)[:, ::-1].reshape(-1) if in_group else a + 1)
        if fails and not of_values and not in_group:
            assert not out.numpy().any()  # what it guards is left out


@needs_opencl
def test_accesses_that_a_build_instruments_are_checked() -> None:
    places = te.placeholder((10,), "int32", name="places")
    a = te.placeholder((8,), name="a")
    b = te.compute((10,), lambda i: a[places[i]], name="b")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    with PassContext(config={"tir.instrument_bound_checkers": True}):
        library = armillary.build(schedule, [a, places, b], "opencl", name="read")
    device = armillary.opencl()
    given = [armillary.nd.array(np.arange(8, dtype="float32"), device), armillary.nd.array(np.full(10, 9, I32), device)]
    with pytest.raises(ExecutionError, match="read: a: index out of bounds"):
        library(*given, armillary.nd.empty((10,), "float32", device))


@needs_opencl
def test_one_graph_over_two_devices_tells_it() -> None:
    """The positions of one part are checked on the CPU, those of the other on the device."""
    x, a, b = relay.var("x", shape=(5, 3)), *(relay.var(n, shape=(2,), dtype="int64") for n in "ab")
    rows = relay.take(x, relay.check_values(a, [(-5, 4)], "rows"), axis=0, mode="wrap")
    here = relay.annotation.on_device(relay.exp(rows), 1)
    columns = relay.check_values(b, [(-3, 2)], "columns")
    there = relay.annotation.on_device(relay.exp(relay.take(here, columns, axis=1, mode="wrap")), 4)
    module = armillary.IRModule.from_expr(relay.Function([x, a, b], there))
    library = relay.build(module, {"cpu": "llvm", "opencl": "opencl"})
    graph = graph_executor.GraphModule(library["default"](armillary.cpu(), armillary.opencl()))
    data = np.random.default_rng(0).random((5, 3), "float32")
    for name, value in (("rows", 5), ("columns", 3), ("columns", -4), ("rows", -6)):
        given = {"a": np.array([0, 4], I64), "b": np.array([2, 0], I64)}
        given["a" if name == "rows" else "b"][1] = value
        with pytest.raises(ExecutionError, match=f"{name} {value} is not in"):
            graph.run(x=data, **given)
    graph.run(x=data, a=np.array([0, 4], I64), b=np.array([2, 0], I64))
    np.testing.assert_allclose(graph.get_output(0).numpy(), np.exp(np.exp(data[[0, 4]][:, [2, 0]])), rtol=1e-5)


@needs_opencl
def test_parameters_are_checked_where_they_are_loaded() -> None:
    x = relay.var("x", shape=(5, 3))
    places = relay.check_values(relay.const(np.array([0, 9], I64)), [(-5, 4)], "rows")
    function = relay.Function([x], relay.take(x, places, axis=0, mode="wrap"))
    with PassContext(opt_level=3, disabled_pass=["FoldConstant"]):
        library = relay.build(armillary.IRModule.from_expr(function), "opencl")
    with pytest.raises(ExecutionError, match=r"node .*: rows 9 is not in \[-5, 4\]"):
        on_device(library)


@pytest.mark.parametrize("shape", [(1 << 16, 1 << 16), (1 << 32,)])
def test_more_values_than_int32_counts_are_counted_in_64_bits(shape: tuple[int, ...]) -> None:
    x = relay.var("x", shape=shape, dtype="int64")
    function = relay.Function([x], relay.check_values(x, [(-5, 4)], "rows"))
    with PassContext(opt_level=3, config={"strict.values": "always", "budget.tensor_bytes": 1 << 40}):
        source = relay.build(armillary.IRModule.from_expr(function), "opencl").get_source("cl")
    assert "check_values[((((long)(block_x)) * 64L) + ((long)(thread_x)))]" in source
