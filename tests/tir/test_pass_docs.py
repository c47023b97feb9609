"""The before and after programs in the passes' docstrings, executed."""

from __future__ import annotations

import inspect

import pytest

from armillary.base.node import structural_equal
from armillary.tir import stmt as S
from armillary.tir.expr import Var
from armillary.tir.parser import Parser, parse_stmt
from armillary.tir.transform import (
    assertions,
    bf16_legalize,
    common_subexpr_elim_tir,
    compact_buffer_allocation,
    hoist_if_then_else,
    inject_double_buffer,
    inject_prefetch,
    inject_virtual_thread,
    loop_partition,
    lower_intrin,
    narrow_data_type,
    plan_and_update_buffer_allocation_location,
    remove_no_op,
    rewrite_unsafe_select,
    simplify,
    storage_flatten,
    storage_rewrite,
    unroll_loop,
    vectorize_loop,
)

PASSES = (
    bf16_legalize.bf16_legalize,
    common_subexpr_elim_tir.common_subexpr_elim_tir,
    hoist_if_then_else.hoist_if_then_else,
    inject_double_buffer.inject_double_buffer,
    inject_prefetch.inject_prefetch,
    inject_virtual_thread.inject_virtual_thread,
    assertions.instrument_bound_checkers,
    loop_partition.loop_partition,
    lower_intrin.lower_intrin,
    narrow_data_type.narrow_data_type,
    assertions.remove_assert,
    remove_no_op.remove_no_op,
    rewrite_unsafe_select.rewrite_unsafe_select,
    compact_buffer_allocation.compact_buffer_allocation,
    plan_and_update_buffer_allocation_location.plan_and_update_buffer_allocation_location,
    simplify.simplify_function,
    storage_flatten.storage_flatten,
    storage_rewrite.storage_rewrite,
    unroll_loop.unroll_loop,
    vectorize_loop.vectorize_loop,
)


def split_example(function: object) -> tuple[str, str, str]:
    """Before, after and the declaration of the docstring's indented example."""
    doc = inspect.getdoc(function) or ""
    example = "\n".join(doc.splitlines()[1:])
    example, _, declaration = example.partition(" where ")
    before, _, after = example.partition("->")
    return before, after, declaration


def declare(text: str, names: dict[str, S.Buffer | Var]) -> None:
    name, _, rest = text.strip().partition(" is ")
    names[name] = Parser(rest, "<doc>").buffer(name)


@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_docstring_example_is_what_the_pass_does(function) -> None:  # type: ignore[no-untyped-def]
    before, after, declaration = split_example(function)
    names: dict[str, S.Buffer | Var] = {"n": Var("n")}
    for name in "AB":
        declare(f"{name} is Buffer[(64,), float32]", names)
    if declaration:
        declare(declaration, names)
    params = tuple(names.values())
    options = {"constant": True} if function is loop_partition.loop_partition else {}
    got = function(S.PrimFunc(params, parse_stmt(before, names)), **options)
    out = dict(zip(names, got.params, strict=True))
    want = S.PrimFunc(got.params, parse_stmt(after, out), got.attrs)
    assert structural_equal(got, want), f"{got}\n--- wanted\n{want}"
