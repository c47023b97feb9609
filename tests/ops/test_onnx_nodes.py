"""ONNX's node cases of the operators that are not neural-network layers, operator by operator as loops.

By the references and compiled, all cases run in tests/frontend/test_backend.py.
"""

from __future__ import annotations

import onnx_cases
import pytest

OPS = (
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
)


@pytest.mark.parametrize("operator", OPS)
def test_node_cases_agree_when_each_operator_runs_as_loops(operator: str) -> None:
    """All cases of an operator in one test: the suite makes its data when it is asked for, in seconds."""
    names, wrong = onnx_cases.cases_of(frozenset(OPS)).get(operator), []
    assert names, "the suite has no case of it"
    for name in names:
        try:
            onnx_cases.check(name)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
