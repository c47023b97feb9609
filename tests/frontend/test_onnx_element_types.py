"""Element types of inputs: the file says what the onnx package says, and others are refused wherever a node stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

from armillary.errors import TypeMismatch
from armillary.frontend import from_onnx
from armillary.frontend.onnx import element_types, signature
from armillary.frontend.onnx.element_types import check_types, formals_of
from armillary.frontend.onnx.tensor import ELEM_TYPES
from armillary.relay.types import TensorType, tensor_type

FLOATS = {"float16", "bfloat16", "float32", "float64"}
SCHEMAS = onnx.defs.get_all_schemas_with_history()
OPERATORS = sorted({(s.domain, s.name) for s in SCHEMAS if s.inputs})
U8, F32, F64 = TensorProto.UINT8, TensorProto.FLOAT, TensorProto.DOUBLE
node = helper.make_node


def versions_of(domain: str, name: str) -> list[OpSchema]:
    return [s for s in SCHEMAS if (s.domain, s.name) == (domain, name)]


def taken(schema: OpSchema, index: int) -> set[str]:
    """The dtypes of ours that an input may have."""
    codes = {dtype: TensorProto.DataType.Name(code).lower() for dtype, code in ELEM_TYPES.items()}
    kinds = schema.inputs[index].types if index < len(schema.inputs) else ()
    return {dtype for dtype, name in codes.items() if f"tensor({name})" in kinds}


def refuses(domain: str, name: str, dtypes: Sequence[str | None]) -> bool:
    types = [None if dtype is None else tensor_type((2,), dtype) for dtype in dtypes]
    try:
        check_types(name, domain, 1, types, "n")
    except TypeMismatch:
        return True
    return False


def looked_at() -> Iterator[tuple[str, str, int, set[str]]]:
    """Inputs of all operators whose types are told, and what any version takes there."""
    for domain, name in OPERATORS:
        versions = versions_of(domain, name)
        for index in range(max(len(s.inputs) for s in versions)):
            formal = next(s.inputs[index] for s in versions if index < len(s.inputs))
            dtypes = set[str]().union(*(taken(s, index) for s in versions))
            has_tensors = any(
                "tensor(" in t[:7] for s in versions if index < len(s.inputs) for t in s.inputs[index].types
            )
            if formal.is_homogeneous and has_tensors:
                yield domain, name, index, dtypes | (FLOATS - {"float32", "float64"} if dtypes & FLOATS else set())


def test_the_types_of_every_input_are_those_of_the_standard() -> None:
    wrong = [
        (name, index, dtype)
        for domain, name, index, dtypes in looked_at()
        for dtype in ELEM_TYPES
        if refuses(domain, name, [*[None] * index, dtype]) != (dtype not in dtypes)
    ]
    assert {row[:2] for row in wrong} == {("Tile", 2)}, "the axis of its first version has the type of the data"
    assert len(list(looked_at())) > 300


def test_what_one_version_takes_together_is_taken() -> None:
    """Also of two types: nothing that the standard has at some version is refused."""
    wrong = []
    for schema in SCHEMAS:
        plain = [t for t in schema.type_constraints if any(k.startswith("tensor(") for k in t.allowed_type_strs)]
        for first in {dtype for k in range(len(schema.inputs)) for dtype in taken(schema, k)}:
            given: list[str | None] = []
            for k, formal in enumerate(schema.inputs):
                dtypes = sorted(taken(schema, k))
                chosen = first if first in dtypes else next(iter(dtypes), None)
                given.append(
                    chosen if formal.type_str in {c.type_param_str for c in plain} else next(iter(dtypes), None)
                )
            if refuses(schema.domain, schema.name, given):
                wrong.append((schema.name, schema.since_version, given))
    assert wrong == []


@pytest.mark.parametrize(
    ("op", "dtypes", "message"),
    [
        ("Add", ["float32", "float64"], "input 1 (B) has dtype float64, wanted float32, as input 0 (A) has"),
        ("Where", ["bool", "float32", "float64"], "input 2 (Y) has dtype float64, wanted float32, as input 1 (X) has"),
        ("Concat", ["int64", "int64", "int32"], "input 2 (inputs) has dtype int32, wanted int64, as input 0 (inputs)"),
        ("DequantizeLinear", ["uint8", "float32", "int8"], "input 2 (x_zero_point) has dtype int8, wanted uint8"),
        ("Gather", ["float32", "uint8"], "input 1 (indices) has dtype uint8, wanted int32 or int64"),
        ("Compress", ["float32", "float32"], "input 1 (condition) has dtype float32, wanted bool"),
    ],
)
def test_what_is_said(op: str, dtypes: list[str], message: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        check_types(op, "", 13, [tensor_type((2,), dtype) for dtype in dtypes], "here")
    assert f"{op} node 'here': {message}" in str(caught.value) and "insert a Cast" in str(caught.value)


def test_types_of_their_own_may_differ() -> None:
    assert not refuses("", "Pow", ["float32", "int64"])
    assert not refuses("", "BatchNormalization", ["float16", "float16", "float16", "float32", "float32"])
    assert not refuses("", "Loop", ["int64", "bool", "float32", "int8"])
    assert not refuses("", "Tile", ["float32", "int64"])  # of one type in the first operator set
    assert not refuses("com.microsoft", "BiasGelu", ["float32", "int8"])


def test_an_operator_that_is_newer_than_the_file_is_asked_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = formals_of("Compress", "")
    monkeypatch.setattr(element_types, "_table", lambda: "\n")
    assert formals_of.__wrapped__("Compress", "") == wanted != ()
    monkeypatch.setattr(element_types, "newest_opset", lambda: signature.newest_opset() - 1)
    monkeypatch.setattr(element_types, "_table", lambda: "\nCompress input:T condition:T T=int8\n")
    assert formals_of.__wrapped__("Compress", "", True) == wanted
    assert formals_of.__wrapped__("Compress", "")[0].dtypes == ("int8",)


# --- every way in -----------------------------------------------------------------------------------------------------


def model(nodes: list[Any], kinds: dict[str, int], weights: dict[str, Any], opset: int = 17) -> ModelProto:
    infos = [helper.make_tensor_value_info(n, kind, (1, 1, 4, 4)) for n, kind in kinds.items()]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "net", infos, [helper.make_empty_tensor_value_info("y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def pool(x: str, y: str) -> Any:
    return node("LpPool", [x], [y], "pool", kernel_shape=[2, 2])


def branch(name: str, nodes: list[Any], out: str) -> Any:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(out)])


def body(with_slice: bool) -> Any:
    """Of a Loop, or of a Scan: the state and what is scanned."""
    infos = [helper.make_tensor_value_info("k", TensorProto.INT64, ()), helper.make_tensor_value_info("going", 9, ())]
    names = ["s", "part"] if with_slice else ["s"]
    inner = [*([] if with_slice else infos), *(helper.make_empty_tensor_value_info(n) for n in names)]
    nodes = [node("Identity", ["s"], ["again"]), pool("x", "row")]
    outs = [] if with_slice else [helper.make_tensor_value_info("going", 9, ())]
    outs += [helper.make_empty_tensor_value_info(n) for n in ("again", "row")]
    return helper.make_graph(nodes, "body", inner, outs)


def of_a_function() -> ModelProto:
    made = model([node("Pooled", ["x"], ["y"], domain="own")], {"x": U8}, {})
    made.opset_import.add(domain="own", version=1)
    opsets = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("own", "Pooled", ["a"], ["b"], [pool("a", "b")], opsets))
    return made


def of_a_body(op: str, inputs: list[str], **attrs: Any) -> ModelProto:
    weights = {"trips": np.int64(3), "true": np.array(True), "zero": np.float32(0)}
    kinds = {"x": U8, "c": TensorProto.BOOL}
    first = node("ReduceMax", ["c_number"], ["choice"], keepdims=0)
    nodes = [node("Cast", ["c"], ["c_number"], to=U8), first, node("Cast", ["choice"], ["cc"], to=TensorProto.BOOL)]
    outputs = ["y"] if op == "If" else ["last", "y"]
    return model([*(nodes if op == "If" else []), node(op, inputs, outputs, **attrs)], kinds, weights)


EVERY_WAY = {
    "node": lambda: model([pool("x", "y")], {"x": U8}, {}),
    "folded": lambda: model([pool("w", "y")], {"x": F32}, {"w": np.ones((1, 1, 4, 4), np.uint8)}),
    "computed": lambda: model([node("Cast", ["x"], ["b"], to=U8), pool("b", "y")], {"x": F32}, {}),
    "mixed": lambda: model([node("Mul", ["x", "z"], ["y"], "pool")], {"x": F32, "z": F64}, {}),
    "function": of_a_function,
    "if": lambda: of_a_body(
        "If", ["cc"], then_branch=branch("a", [pool("x", "p")], "p"), else_branch=branch("b", [pool("x", "q")], "q")
    ),
    "loop": lambda: of_a_body("Loop", ["trips", "true", "zero"], body=body(False)),
    "scan": lambda: of_a_body("Scan", ["zero", "x"], body=body(True), num_scan_inputs=1),
    "operator with a body": lambda: model(
        [node("GreaterOrEqual", ["x", "z"], ["y"], "pool")], {"x": F32, "z": F64}, {}, opset=12
    ),
}


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_type_that_the_standard_has_not_is_refused_by_name(way: str) -> None:
    with pytest.raises(TypeMismatch, match=r"wanted float") as caught:
        from_onnx(EVERY_WAY[way]())
    assert "pool" in str(caught.value)


def test_a_sequence_is_not_looked_at() -> None:
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    module, _ = from_onnx(model(nodes, {"x": U8}, {}))
    ty = module["main"].body.checked_type
    assert isinstance(ty, TensorType) and ty.static == (2, 1, 4, 4)
