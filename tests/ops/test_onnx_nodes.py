"""ONNX's node cases of the operators that are not neural-network layers, at reference level."""

from __future__ import annotations

import onnx_cases
import pytest

OPS = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "ArgMax",
        "ArgMin",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitCast",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "Cos",
        "Cosh",
        "CumProd",
        "CumSum",
        "Div",
        "Einsum",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "EyeLike",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Reshape",
        "ReverseSequence",
        "Round",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Size",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "Tile",
        "TensorScatter",
        "TopK",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)


CASES = onnx_cases.cases_of(OPS)


@pytest.mark.parametrize("name", CASES)
def test_node_case_agrees_with_its_stored_outputs(name: str) -> None:
    onnx_cases.check(name)


@pytest.mark.parametrize("name", CASES)
def test_node_case_agrees_when_each_operator_runs_as_loops(name: str) -> None:
    onnx_cases.check(name, onnx_cases.run_as_loops)
