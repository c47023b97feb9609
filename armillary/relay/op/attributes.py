"""Operators that scripts register, and the kinds of operators by their old names.

In: names. Out: an operator of a script's own: it has a name, inputs and what `register_op_attr` holds for it, and may
get the facets that `Op` describes. Invariant: such an operator computes nothing until it has a type rule and a
reference.
"""

from __future__ import annotations

from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary
from armillary.relay.op import Kind, Op, get_op, register_op_attr


class OpPattern:
    """The kinds, as scripts name them."""

    ELEMWISE = int(Kind.ELEMENTWISE)
    BROADCAST = int(Kind.BROADCAST)
    INJECTIVE = int(Kind.INJECTIVE)
    COMM_REDUCE = int(Kind.REDUCE)
    OUT_ELEMWISE_FUSABLE = int(Kind.CONTRACTION)
    TUPLE = int(Kind.TUPLE)
    OPAQUE = int(Kind.OPAQUE)


def register(op_name: str, describe: str = "") -> Op:
    """A new operator of that name."""
    return Op(op_name, kind=Kind.OPAQUE, inputs=(), doc=describe)


@boundary("register_pattern", arguments=True)
def register_pattern(op_name: str, pattern: int, level: int = 10) -> None:
    """Say how an operator of a script's own takes part in fusion."""
    del level
    get_op(op_name).kind = Kind(pattern)


@boundary("register_stateful", arguments=True)
def register_stateful(op_name: str, stateful: bool, level: int = 10) -> object:
    """Say whether an operator does more than compute its result."""
    get_op(op_name).stateful = stateful
    return register_op_attr(op_name, "TOpIsStateful", stateful, level)


def register_alter_op_layout(op_name: str, alter_layout: AnyFunction | None = None, level: int = 10) -> AnyFunction:
    """Say how AlterOpLayout writes an operator: `rule(attrs, inputs, types, result type)`; also a decorator."""
    held: AnyFunction = register_op_attr(op_name, "FTVMAlterOpLayout", alter_layout, level)
    return held


def register_convert_op_layout(op_name: str, convert_layout: AnyFunction | None = None, level: int = 10) -> AnyFunction:
    """Say how ConvertLayout writes an operator: `rule(attrs, inputs, types, desired layouts)`; also a decorator."""
    held: AnyFunction = register_op_attr(op_name, "FTVMConvertOpLayout", convert_layout, level)
    return held


def register_infer_correct_layout(
    op_name: str, infer_layout: AnyFunction | None = None, level: int = 10
) -> AnyFunction:
    """Say how an operator follows layouts: `rule(attrs, new, old, types)` gives an InferCorrectLayoutOutput."""
    held: AnyFunction = register_op_attr(op_name, "FInferCorrectLayout", infer_layout, level)
    return held
