"""The order of the loop passes: from what TE made to what a code generator takes.

In: a PrimFunc over N-dimensional buffers. Out: a PrimFunc over flat buffers, vectorised, unrolled, simplified;
`split_phases` then cuts it for the kernel ABI. Invariant: after every line below the comment under it holds, and
`interpret` gives the same results before and after. User passes join by `tir.add_lower_pass` = [(phase, pass), …],
phase 0 to 3; instruments of the current PassContext see every pass. Function attributes: `global_symbol`,
`noalias`, `tensor_shapes` (shapes as the caller sees them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.tir import stmt as S
from armillary.tir.transform.assertions import (
    DISABLE_ASSERT,
    INSTRUMENT_BOUND_CHECKERS,
    InstrumentBoundCheckers,
    RemoveAssert,
)
from armillary.tir.transform.bf16_legalize import BF16Legalize
from armillary.tir.transform.common_subexpr_elim_tir import CommonSubexprElimTIR
from armillary.tir.transform.hoist_if_then_else import HoistIfThenElse
from armillary.tir.transform.inject_double_buffer import InjectDoubleBuffer
from armillary.tir.transform.inject_prefetch import InjectPrefetch
from armillary.tir.transform.inject_virtual_thread import InjectVirtualThread
from armillary.tir.transform.loop_partition import LoopPartition
from armillary.tir.transform.loop_pass import FIRST
from armillary.tir.transform.lower_intrin import LowerIntrin
from armillary.tir.transform.narrow_data_type import NarrowDataType
from armillary.tir.transform.remove_no_op import RemoveNoOp
from armillary.tir.transform.rewrite_unsafe_select import RewriteUnsafeSelect
from armillary.tir.transform.simplify import Simplify
from armillary.tir.transform.storage_flatten import FlattenBuffer, StorageFlatten
from armillary.tir.transform.storage_rewrite import StorageRewrite
from armillary.tir.transform.unroll_loop import LONG_CODE, LONG_TEXT, UnrollLoop
from armillary.tir.transform.vectorize_loop import VectorizeLoop
from armillary.tir.verifier import verify
from armillary.transform import ADD_LOWER_PASS, Pass, PassContext, PassDefinition, register_config_option

NOALIAS = register_config_option("tir.noalias", bool, True, "arguments of a kernel never overlap")
VERIFY_EACH = register_config_option("tir.debug_verify", bool, False, "verify the program after every loop pass")
_NAME = "main"
_PASS_KINDS = (Pass, PassDefinition)


def passes(
    simple: bool = False, target: object = None, constant_loops: bool = False, had_blocks: bool = False
) -> list[Callable[[IRModule], IRModule]]:
    """The passes in force, in order; `constant_loops` are partitioned unless the context says otherwise.

    Of a module that `had_blocks` the passes of phase 0 ran before these were lowered (tir/transform/scripts/blocks.py).
    """
    context = PassContext.current()
    user = _user_passes(context)
    kind = _kind_name(target)
    return [
        *([] if had_blocks else user[0]),
        *(first(kind) for first in FIRST if target is not None),
        # no data type of a script's own
        # phase 1: one-dimensional memory, index types and narrow floats settled
        InjectPrefetch(),
        # a prefetch names one cache line
        FlattenBuffer() if had_blocks else StorageFlatten(),
        # every buffer has one dimension; `tensor_shapes` keeps the shapes the caller sees
        BF16Legalize(),
        # no bfloat16 arithmetic: only loads, stores and casts
        NarrowDataType(target_bits=32),
        # indices that provably fit are int32
        Simplify(),
        # no loop of one iteration; no condition that the loop ranges decide
        *user[1],
        # phase 2: loops take their final shape
        *([] if simple else [LoopPartition(constant=constant_loops)]),
        # the main part of each loop tests no likely or padding condition
        VectorizeLoop(masks=constant_loops and kind == "llvm"),
        # no loop is marked vectorized
        InjectVirtualThread(),
        InjectDoubleBuffer(),
        # no virtual_thread, no double_buffer_scope
        StorageRewrite(),
        # buffers with disjoint lives share memory
        UnrollLoop(long_code=LONG_TEXT if kind == "c" else LONG_CODE),
        # no loop is marked unrolled; indices of register tiles are sums of constants
        *user[2],
        # phase 3: clean-up
        Simplify(),
        # indices of register tiles are constants
        RemoveNoOp(),
        RewriteUnsafeSelect(),
        # no scalar select evaluates an unsafe branch
        HoistIfThenElse(),
        CommonSubexprElimTIR(),
        *([RemoveAssert()] if context.get(DISABLE_ASSERT) else []),
        *user[3],
        LowerIntrin(target=kind, divisions=False),
        # no intrinsic that a user's rule lowers
        *([InstrumentBoundCheckers()] if context.get(INSTRUMENT_BOUND_CHECKERS) else []),
    ]


def lower_function(
    func: S.PrimFunc,
    target: object = None,
    simple: bool = False,
    constant_loops: bool = False,
    had_blocks: bool = False,
) -> S.PrimFunc:
    """Run the loop passes on one function; `simple` skips loop partitioning, for reading.

    `target` chooses the rules that users registered for its kind; `constant_loops` and `had_blocks` as `passes`
    has them.
    Raises UnsupportedError for programs nested too deep.
    """
    name = func.get_attr("global_symbol", _NAME)
    lowered: S.PrimFunc = lower_module(IRModule({name: func}), simple, target, constant_loops, had_blocks)[name]
    return lowered


def lower_first(func: S.PrimFunc, target: object) -> S.PrimFunc:
    """A function that was lowered for no target, with what only a target decides."""
    name, module = func.get_attr("global_symbol", _NAME), IRModule()
    module[name] = func
    for first in FIRST:
        module = first(_kind_name(target))(module)
    return module[name]  # type: ignore[no-any-return]


def _kind_name(target: object) -> str:
    """The kind of a target that is one, or is named by a text; "default" without one."""
    if target is None:
        return "default"
    return str(getattr(getattr(target, "kind", None), "name", "") or str(target).split()[0])


def lower_module(
    module: IRModule,
    simple: bool = False,
    target: object = None,
    constant_loops: bool = False,
    had_blocks: bool = False,
) -> IRModule:
    """Run the loop passes on every PrimFunc of a module."""
    context = PassContext.current()
    if not context.get(NOALIAS):
        module = module.map_functions(lambda _, f: f.with_attr("noalias", False) if isinstance(f, S.PrimFunc) else None)
    is_checked = context.get(VERIFY_EACH)
    try:
        for item in passes(simple, target, constant_loops, had_blocks):
            if isinstance(item, Pass) and not context.pass_enabled(item.info):
                continue
            module = item(module)
            if is_checked:
                _verify_module(module)
    except RecursionError:
        raise UnsupportedError("the loop program is nested too deeply", hint="split long sums into stages") from None
    return module


def _verify_module(module: IRModule) -> None:
    for _, function in module.items():
        if isinstance(function, S.PrimFunc):
            verify(function)


def passes_before_blocks() -> list[Callable[[IRModule], IRModule]]:
    """The passes of phase 0 of the context in force, which see a function's blocks."""
    return _user_passes(PassContext.current())[0]


def _user_passes(context: PassContext) -> list[list[Callable[[IRModule], IRModule]]]:
    result: list[list[Any]] = [[], [], [], []]
    for entry in context.get(ADD_LOWER_PASS):
        is_pair = isinstance(entry, list | tuple) and len(entry) == 2
        if not is_pair or not isinstance(entry[0], int) or entry[0] < 0 or not isinstance(entry[1], _PASS_KINDS):
            hint = "wanted pairs (phase from 0 to 3, pass); a function becomes a pass by tir.transform.prim_func_pass"
            raise ConfigError(f"tir.add_lower_pass: got {entry!r}", hint=hint)
        result[min(entry[0], 3)].append(entry[1])
    return result
