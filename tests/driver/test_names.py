"""Names of every kind: what people call inputs, functions and variables never meets what the compiler calls its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay, te
from armillary.base.names import Identifiers, Names, check_name, identifier, printable_name, symbol
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.library import GraphLibrary
from armillary.driver.program_codegen import plan_network
from armillary.errors import TypeMismatch
from armillary.program.to_graph import graph_of
from armillary.runtime import load_module
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
HOSTILE = (
    "p0",
    "p1",
    "p0_1",
    "p1_1",
    "__if",
    "__nop",
    "__loop",
    "default",
    "main",
    "",
    "x" * 1000,
    "X" * 1000,
    "A",
    "a",
    "é",
    "日本",
    "\U0001f600",
    "²",
    "a b",
    'q"uote',
    "a/b",
    "../x",
    "%0",
    "0",
    "x.0",
    "int",
    "data",
    "self",
    "key",
    "value",
    "file",
    "line\nbreak",
    "back\\slash",
    "armillary_params",
    "subtract#5",
    "node#3",
    "null",
    "a=b",
    "=",
    "@main",
    "let",
    "fn",
    "meta[relay.Constant][0]",
    "a.npy",
    "{}",
    "\x01",
    "fused_subtract",
)
UNUSABLE = ("nul\0", "\0", "\ud800", "a\udfff")


def _values(names: tuple[str, ...]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {name: random.integers(1, 9, 3).astype(np.float32) for name in names}


def _chain(names: tuple[str, ...]) -> relay.Function:
    """a - 1·b - 2·c …: nothing may be exchanged; one constant for each input."""
    inputs = [relay.var(name, shape=(3,)) for name in names]
    made = inputs[0]
    for factor, item in enumerate(inputs[1:], 1):
        made = relay.subtract(made, relay.multiply(item, relay.const(np.full(3, factor, np.float32))))
    return relay.Function(inputs, made)


def _expected(values: Mapping[str, Array]) -> Array:
    first, *others = values.values()
    return np.asarray(first - sum(factor * value for factor, value in enumerate(others, 1)))


def _runs(library: GraphLibrary, folder: Path) -> list[GraphModule]:
    """The network here, and through both kinds of packages."""
    paths = [folder / "net.so", folder / "net.tar"]
    for path in paths:
        library.export_library(path)
    modules = [library, *(load_module(str(path)) for path in paths)]
    return [GraphModule(module["default"](armillary.cpu(0))) for module in modules]


@pytest.mark.parametrize("level", [0, 3])
def test_inputs_of_any_name_keep_their_values_through_packages(level: int, tmp_path: Path) -> None:
    values = _values(HOSTILE)
    with PassContext(opt_level=level):
        library = relay.build(_chain(HOSTILE), "llvm")
    for graph in _runs(library, tmp_path):
        for name, value in values.items():
            graph.set_input(name, value)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0).numpy(), _expected(values))


@pytest.mark.parametrize("names", [("p0",), ("p1", "p0"), ("p1",), ("p0_1", "p0"), ("p2", "p1_1", "p1")])
def test_an_input_called_like_a_parameter_keeps_its_value(names: tuple[str, ...], tmp_path: Path) -> None:
    given, weights = helper.make_tensor_value_info, [np.array([10, 20, 30], np.float32), np.full(3, 2, np.float32)]
    nodes = [helper.make_node("Sub", [names[0], "w"], ["t"]), helper.make_node("Mul", ["t", "v"], ["s0"])]
    nodes += [helper.make_node("Sub", [f"s{k}", name], [f"s{k + 1}"]) for k, name in enumerate(names[1:])]
    graph = helper.make_graph(
        nodes,
        "net",
        [given(name, TensorProto.FLOAT, [3]) for name in names],
        [given(f"s{len(names) - 1}", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(value, name) for value, name in zip(weights, "wv", strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    module, params = relay.frontend.from_onnx(model)
    values = _values(names)
    wanted = (values[names[0]] - weights[0]) * 2 - sum(values[name] for name in names[1:])
    for run in _runs(relay.build(module, "llvm", params=params), tmp_path):
        run.run(**values)
        np.testing.assert_array_equal(run.get_output(0).numpy(), wanted)


def test_inputs_called_like_arguments_of_python_can_be_set_by_keyword() -> None:
    values = _values(("self", "key", "value", "input_dict", "params"))
    library = relay.build(_chain(tuple(values)), "llvm")
    for graph in (GraphModule(library["default"]()) for _ in range(2)):
        graph.set_input(**values)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0).numpy(), _expected(values))
        graph.set_input("key", values["value"])
        graph.run(**{**values, "self": values["key"]})
        np.testing.assert_array_equal(graph.get_output(0).numpy(), _expected({**values, "self": values["key"]}))


@pytest.mark.parametrize("level", [0, 3])
def test_fields_of_tuples_give_way_to_inputs_that_are_called_so(level: int) -> None:
    ty = relay.TensorType((2,), "float32")
    plain, pair = relay.var("t.0", ty), relay.var("t", relay.TupleType((ty, ty)))
    body = relay.subtract(relay.subtract(plain, pair[0]), relay.multiply(pair[1], relay.const(np.float32(2))))
    with PassContext(opt_level=level):
        graph = GraphModule(relay.build(relay.Function([pair, plain], body), "llvm")["default"]())
    for name, value in {"t.0": 1, "t.0_1": 10, "t.1": 100}.items():
        graph.set_input(name, np.full(2, value, np.float32))
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), np.full(2, 1 - 10 - 200, np.float32))


def test_no_two_nodes_of_a_graph_share_a_name() -> None:
    names = tuple(f"node#{k}" for k in range(8))
    module = relay.optimize(armillary.IRModule.from_expr(_chain(names)), "llvm")[0]
    program = plan_network(module["main"]).program
    nodes = [node.name for node in graph_of(program).nodes]
    assert len(set(nodes)) == len(nodes)
    assert set(names) <= set(nodes)


def test_texts_with_any_name_parse_back() -> None:
    text = relay.astext(armillary.IRModule.from_expr(_chain(HOSTILE)))
    again = armillary.relay.parse(text)
    assert [p.name_hint for p in again["main"].params] == list(HOSTILE)
    assert relay.astext(again) == text


@pytest.mark.parametrize("name", UNUSABLE)
def test_names_that_no_package_holds_are_refused_when_compiling(name: str) -> None:
    with pytest.raises(TypeMismatch, match=r"the name of an input, .* contains (NUL|half a surrogate pair)"):
        relay.build(_chain((name, "other")), "llvm")
    a = te.placeholder((3,), name="a")
    out = te.compute((3,), lambda i: a[i] + 1, name="out")
    with pytest.raises(TypeMismatch, match="the name of a function"):
        armillary.build(te.create_schedule(out.op), [a, out], "llvm", name=name)


def _doubled_and_tripled(target: str, function: str, tensor: str, variable: str) -> Any:  # Any: a FunctionLibrary
    n, m = te.var(variable), te.var(variable)
    a, b = te.placeholder((n,), name=tensor), te.placeholder((m,), name=tensor)
    c = te.compute((n,), lambda i: a[i] * 2, name=tensor)
    d = te.compute((m,), lambda i: b[i] * 3, name=tensor)
    return armillary.build(te.create_schedule([c.op, d.op]), [a, b, c, d], target, name=function)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    "name", ["n", "int", "restrict", "a b", "é", "²", "", "x" * 3000, "line\nbreak", 'q"', "f__p0"]
)
def test_loop_functions_tensors_and_sizes_of_any_name(target: str, name: str, tmp_path: Path) -> None:
    library = _doubled_and_tripled(target, name, name, name)
    functions = [library[name]]
    if target == "llvm" and len(name) < 100:
        library.export_library(tmp_path / "f.so")
        functions.append(load_module(str(tmp_path / "f.so"))[name])
    x, y = np.arange(5, dtype=np.float32), np.arange(3, dtype=np.float32)
    for function in functions:
        c, d = armillary.nd.array(np.zeros_like(x)), armillary.nd.array(np.zeros_like(y))
        function(armillary.nd.array(x), armillary.nd.array(y), c, d)
        np.testing.assert_array_equal(c.numpy(), 2 * x)
        np.testing.assert_array_equal(d.numpy(), 3 * y)


def test_functions_whose_names_differ_in_characters_that_c_lacks_are_two() -> None:
    functions = {}
    for factor, name in enumerate(("a b", "a_b", "a-b", "A_B"), 2):
        a = te.placeholder((3,), name="a")
        out = te.compute((3,), lambda i, a=a, factor=factor: a[i] * factor, name="out")
        functions[name] = armillary.lower(te.create_schedule(out.op), [a, out], name)[name]
    library = armillary.build(armillary.IRModule(functions), target="llvm")
    for factor, name in enumerate(functions, 2):
        result = armillary.nd.array(np.zeros(3, np.float32))
        library[name](armillary.nd.array(np.ones(3, np.float32)), result)
        np.testing.assert_array_equal(result.numpy(), np.full(3, factor, np.float32))


@pytest.mark.parametrize("name", ["a=b", "x" * 400, "a.npy", "p0"])
def test_the_runner_sets_inputs_of_any_name(name: str, tmp_path: Path, built_runner: Callable[..., Path]) -> None:
    runner = built_runner(["cc"])
    relay.build(_chain((name, "other")), "llvm").export_library(tmp_path / "net.tar")
    values = _values((name, "other"))
    np.savez(tmp_path / "in.npz", **values)
    files = {key: tmp_path / f"{k}.npy" for k, key in enumerate(values)}
    for key, value in values.items():
        np.save(files[key], value)
    for given in (
        [f"--input={tmp_path}/in.npz"],
        [f"--input={key}={files[key]}" for key in values],
    ):
        subprocess.run([runner, tmp_path / "net.tar", *given, f"--output={tmp_path}/out.npz"], check=True, timeout=60)
        with np.load(tmp_path / "out.npz") as outputs:
            np.testing.assert_array_equal(outputs["output_0"], _expected(values))


def test_parameters_of_long_names_load_from_a_blob() -> None:
    values = _values(("w" * 5000, "w" * 5001))
    graph = GraphModule(relay.build(_chain(tuple(values)), "llvm")["default"]())
    graph.load_params(relay.save_param_dict(values))
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), _expected(values))


def test_made_names_give_way_to_given_ones() -> None:
    names = Names(["p0", "p0_1"])
    assert [names.fresh("p0"), names.fresh("p0"), names.fresh("p1"), names.fresh("p1_1"), names.fresh("p1")] == [
        "p0_2",
        "p0_3",
        "p1",
        "p1_1",
        "p1_2",
    ]
    own = Identifiers(["int"])
    assert [own.of(key, hint) for key, hint in ((1, "int"), (2, "a b"), (3, "a_b"), (1, "x"))] == [
        "int_1",
        "a_b",
        "a_b_1",
        "int_1",
    ]


def test_symbols_are_identifiers_and_no_two_names_share_one() -> None:
    symbols = {name: symbol(name) for name in (*HOSTILE, *UNUSABLE)}
    assert len(set(symbols.values())) == len(symbols)
    assert all(made == identifier(made) for made in symbols.values())
    assert symbols["p0"] == "p0"


def test_unusable_names_can_be_told() -> None:
    assert [printable_name(name) for name in ("é\0", "\ud800x")] == ["é\\0", "\\ud800x"]
    assert check_name("é\n", "an input") == "é\n"
