"""armillary.ir.save_json and load_json: nothing is lost, and nothing hostile gets in."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import ir, relay, te
from armillary.base.extent import size
from armillary.base.node import structural_equal
from armillary.errors import ArmillaryError, InternalError, ModelError, Span, TypeMismatch, UnsupportedError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, Var, const, var
from armillary.relay.op import OPS
from armillary.relay.testing import mlp
from armillary.relay.types import TensorType, Type
from armillary.relay.walk import post_order
from armillary.transform import PassContext


def back(item: Any) -> Any:  # Any: what was saved
    return ir.load_json(ir.save_json(item))


def spans(item: Expr) -> list[Span | None]:
    return [getattr(e, "span", None) for e in post_order(item)]


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_operator_keeps_its_attributes(name: str) -> None:
    op = OPS[name]
    for sample in op.sample_source() if op.sample_source is not None else ():
        call = Call(op, tuple(_argument(v) for v in sample.inputs), sample.attrs)
        assert structural_equal(back(call), call)


def _argument(value: Any) -> Expr:  # Any: a type, an array or a tuple of them
    if isinstance(value, tuple | list):
        return Tuple(tuple(map(_argument, value)))
    made: Expr = Var("x", value) if isinstance(value, Type) else Constant(np.asarray(value))
    return made


def test_a_network_keeps_constants_spans_and_sharing() -> None:
    module, params = mlp.get_workload(1)
    main = relay.bind_params_by_name(module["main"], params)
    again = back(IRModule({"main": main}))["main"]
    assert structural_equal(again, main)
    assert len(post_order(again)) == len(post_order(main))
    assert spans(again) == spans(main)


def test_kernels_lets_branches_and_global_calls_come_back() -> None:
    x, c = var("x", shape=(4,)), var("c", shape=(), dtype="bool")
    twice, y = GlobalVar("twice"), var("y", shape=(4,))
    shared = Call(relay.op.get_op("exp"), (x,), None, Span("model.onnx", "node é", 3, 7))
    body = Let(y, Call(twice, (shared,)), If(c, y + shared, relay.nn.relu(y)))
    z = var("z", shape=(4,))
    module = IRModule({"main": Function((x, c), body), twice: Function((z,), z + z, z.type_annotation)})
    again = back(module)
    assert str(again) == str(module)
    assert again["main"].body.value.op is again.get_global_var("twice")
    assert spans(again["main"]) == spans(module["main"])
    with PassContext(opt_level=3):
        fused, _ = relay.optimize(IRModule.from_expr(Function((x,), relay.nn.softmax(shared) * const(2.0))), "llvm")
    assert structural_equal(back(fused)["main"], fused["main"])


def test_loops_come_back() -> None:
    number, going, state = var("n", shape=(), dtype="int64"), var("g", shape=(), dtype="bool"), var("s", shape=(2,))
    x, most = var("x", shape=(2,)), Constant(np.array(3, np.int64))
    step = Function((number, going, state), Tuple((going, state + const(1.0))))
    loop = Function((x,), Loop(step, most, Constant(np.array(True)), (x,), 1))
    assert structural_equal(back(loop), loop)
    sized = Function((x,), Loop(step, most, Constant(np.array(True)), (x,), 1, size("n") + 1))
    assert structural_equal(back(sized), sized)
    assert str(back(IRModule.from_expr(loop))) == str(IRModule.from_expr(loop))


def test_attributes_of_functions_keep_their_kinds() -> None:
    values = (1, 2.5, float("inf"), "text", None, True, (1, ("a",)), [1, 2], {"k": (1,)}, armillary.dtype.DType("int8"))
    attrs = tuple((f"a{k}", value) for k, value in enumerate(values))
    x = var("x", TensorType((relay.types.ANY_DIM, 3)))
    f = back(Function((x,), x, None, (*attrs, ("t", x.type_annotation))))
    assert [type(v) for _, v in f.attrs] == [*map(type, values), TensorType]
    assert f.attrs == (*attrs, ("t", x.type_annotation))
    with pytest.raises(UnsupportedError, match="an attribute of type object"):
        ir.save_json(Function((x,), x, None, (("odd", object()),)))


def test_values_that_json_has_no_word_for_are_exact() -> None:
    bits = np.array([0x7FC00001, 0x80000000, 1], np.uint32).view(np.float32)  # a NaN with payload, -0.0, a denormal
    assert back(Constant(bits)).data.tobytes() == bits.tobytes()
    empty = back(Constant(np.zeros((0, 3), np.int8))).data
    assert (empty.shape, empty.dtype) == ((0, 3), np.int8)


def test_loop_functions_are_held_as_text() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    f = te.lower_schedule(te.create_schedule(b.op), [a, b], "double")
    assert structural_equal(back(f), f)
    module = IRModule({"double": f, "main": Function((x := var("x", shape=(8,)),), x)})
    assert str(back(module)) == str(module)


def test_what_is_no_program_has_no_json_form() -> None:
    with pytest.raises(UnsupportedError, match="a dict has no JSON form"):
        ir.save_json({})  # type: ignore[arg-type]


NODE = {"kind": "Var", "name": "x", "type": {"shape": [2], "dtype": "float32"}}


def form(*nodes: Any, root: Any = 0, **more: Any) -> str:
    head = {"format": "armillary-ir", "version": 1, "root": root, "spans": []}
    return json.dumps(head | {"nodes": list(nodes)} | more)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the JSON of a module"),
        ("[" * 100_000, "not the JSON of a module"),
        ("[]", "not the JSON of a module"),
        (form(NODE, version=2), "has version 2"),
        (form(NODE, root=1), "has 1 as 'root'"),
        (form(NODE, root=True), "has True as 'root'"),
        (form({"kind": "Tuple", "fields": [0]}), "has 0 as 'fields', wanted the number of an earlier node"),
        (form({"kind": "__import__"}), "unknown kind '__import__'"),
        (form({"kind": []}), "unknown kind \\[\\]"),
        (form(NODE | {"span": 0}), "has the span 0"),
        (form(NODE, spans=[["a", "b", 1]]), "wanted \\[source, name, line, column\\]"),
        (form({"kind": "Call", "op": "os.system", "args": []}), "no operator 'os.system'"),
        (form(NODE, {"kind": "Call", "op": "nn.relu", "args": [0], "attrs": {"x": 1}}), "nn.relu takes no attributes"),
        (form(NODE, {"kind": "Call", "op": "nn.softmax", "args": [0], "attrs": {"axis": "1"}}, root=1), "axis|fit"),
        (form({"kind": "Constant", "shape": [4], "dtype": "float32", "data": "AAAA"}), "got 3 bytes, wanted 16"),
        (form({"kind": "Var", "name": "x", "type": {"shape": [-1], "dtype": "float32"}}), "type that is damaged"),
        (form({"kind": "Var", "name": "x", "type": {"shape": [1], "dtype": "object"}}), "unknown dtype 'object'"),
        (form({"kind": "PrimFunc", "text": "func @other() { pass }"}), "does not hold one tir function"),
        (form({"kind": "IRModule", "functions": [[0]]}), "an entry that is no pair"),
    ],
)
def test_a_damaged_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArmillaryError, match=message) as caught:
        ir.load_json(text)
    assert not isinstance(caught.value, InternalError)


def test_an_ill_typed_graph_is_refused() -> None:
    other = NODE | {"type": {"shape": [3], "dtype": "float32"}}
    with pytest.raises(TypeMismatch, match="add"):
        ir.load_json(form(NODE, other, {"kind": "Call", "op": "add", "args": [0, 1]}, root=2))


def test_deep_attributes_and_types_are_refused() -> None:
    deep: Any = 0
    for _ in range(500):
        deep = [deep]
    function = {"kind": "Function", "params": [0], "body": 0, "ret_type": None, "attrs": [["a", deep]]}
    with pytest.raises(ModelError, match="nested deeper"):
        ir.load_json(form(NODE, function, root=1))


def test_random_damage_never_escapes_the_error_family() -> None:
    seed = 20
    print(f"seed {seed}")
    rng = random.Random(seed)
    x = var("x", shape=(2, 3))
    body = Let(y := var("y", shape=(2, 3)), relay.nn.softmax(x, axis=1), relay.concatenate((y, x + const(1.5)), 0))
    text = ir.save_json(IRModule.from_expr(Function((x,), body, None, (("names", ("a", 1)),))))
    words = ['"', "{", "}", "[", "]", "0", "-1", "null", "1e999", "NaN", '"x"', "[]", "{}", "99999999999999999999"]
    for _ in range(1500):
        at = rng.randrange(len(text))
        damaged = text[:at] + rng.choice(words) + text[at + rng.randrange(4) :]
        try:
            ir.load_json(damaged)
        except InternalError:
            pytest.fail(damaged)
        except ArmillaryError:
            continue


def test_types_and_operators_have_a_form() -> None:
    pair = relay.TupleType((TensorType((1, 2), "int8"), relay.FuncType((relay.TypeVar("t"),), relay.TypeVar("t"))))
    for item in (pair, relay.TypeVar("t"), TensorType((), "float32"), relay.op.get("add")):
        assert ir.load_json(ir.save_json(item)) == item
        assert item.span is None if isinstance(item, Type) else True
    with pytest.raises(ModelError, match="damaged"):
        ir.load_json(ir.save_json(relay.TypeVar("t")).replace('"of":0', '"of":99'))
