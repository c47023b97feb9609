"""The loop language: scalar expressions, statements, functions, text, interpreter, passes.

In: expressions and loops, of TE or of a script. Out: functions that code generators take. Invariant: this file gives
the names that scripts use (`tir.Var`, `tir.exp`, `tir.transform`) and resolves each on first use. Core modules: expr
(nodes), build (constructors; installs the operators of Expr), stmt (statements), intrinsics (named functions),
simplify, printer, parser, verifier, interpreter, lower (the pass pipeline).
"""

from armillary.base.lazy import lazy_names

_EXPR = (
    "Add And Broadcast Call Cast CommReducer Div EQ FloatImm FloorDiv FloorMod GE GT IntImm IterVar LE LT Let Max "
    "Min Mul NE Not Or ProducerLoad Ramp Reduce Select StringImm Sub Var BufferLoad"
)
_STMT = "Allocate AssertStmt AttrStmt Buffer BufferStore Evaluate For IfThenElse LetStmt PrimFunc SeqStmt Stmt While"
_MATH = (
    "exp exp2 exp10 log log2 log10 log1p sqrt rsqrt sigmoid erf sin cos tan sinh cosh tanh asin acos atan asinh acosh "
    "atanh floor ceil trunc round nearbyint"
)
_BUILD = {
    "const": "checked_const",
    "if_then_else": "if_then_else",
    "likely": "likely",
    "all": "all_of",
    "any": "any_of",
    "div": "div",
    "floordiv": "floordiv",
    "floormod": "floormod",
    "truncdiv": "truncdiv",
    "truncmod": "truncmod",
    "indexdiv": "indexdiv",
    "indexmod": "indexmod",
    "ceildiv": "ceildiv",
    "min": "minimum",
    "max": "maximum",
}
_BUILTINS = (
    "TVMBackendAllocWorkspace TVMBackendFreeWorkspace address_of assume bitwise_not call_cpacked call_packed clz "
    "create_barriers dp4a end_profile_intrinsic isnullptr lookup_param mma_fill mma_store popcount ptx_arrive_barrier "
    "ptx_arrive_barrier_expect_tx ptx_commit_group ptx_cp_async ptx_cp_async_barrier ptx_cp_async_bulk "
    "ptx_init_barrier_thread_count ptx_ldmatrix ptx_mma ptx_mma_sp ptx_wait_barrier ptx_wait_group reinterpret "
    "start_profile_intrinsic tvm_bmma_sync tvm_fill_fragment tvm_load_matrix_sync tvm_mma_sync tvm_stack_alloca "
    "tvm_stack_make_array tvm_stack_make_shape tvm_store_matrix_sync tvm_struct_set tvm_thread_allreduce "
    "tvm_thread_context tvm_throw_last_error tvm_tuple undef vectorcombine vectorhigh vectorlow"
)
_TABLE = {
    **{name: f"armillary.tir.expr:{name}" for name in _EXPR.split()},
    **{name: f"armillary.tir.stmt:{name}" for name in _STMT.split()},
    **{name: f"armillary.te.math:{name}" for name in _MATH.split()},
    **{name: f"armillary.tir.build:{function}" for name, function in _BUILD.items()},
    **{name: f"armillary.tir.{name}" for name in ("ir_builder", "stmt_functor", "transform")},
    **{name: f"armillary.tir.intrinsics:{name}" for name in ("call_extern", "call_pure_extern")},
    "layout": "armillary.base.data_layout:named_layout",
    **{name: f"armillary.base.data_layout:{name}" for name in ("Layout", "BijectiveLayout", "bijective_layout")},
    **{name: f"armillary.te.math:{name}" for name in ("abs", "power", "pow", "isnan", "isinf", "isfinite", "fmod")},
    **{name: f"armillary.tir.vendor_intrinsics:{name}" for name in ("call_llvm_intrin", "call_llvm_pure_intrin")},
    **{
        name: f"armillary.tir.builtins:{name}"
        for name in (
            "Shuffle",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "infinity",
            "ldexp",
            "ret",
            "shift_left",
            "shift_right",
            "trace",
            "tvm_access_ptr",
            "tvm_struct_get",
            "type_annotation",
        )
    },
    **{name: f"armillary.tir.builtins:{name}" for name in _BUILTINS.split()},
    **{name: f"armillary.te.math:{name}" for name in ("atan2", "copysign", "hypot", "nextafter")},
    "ForKind": "armillary.tir.stmt:LoopKind",
    **{
        name: f"armillary.tir.blocks.block:{name}"
        for name in ("Block", "BlockRealize", "BufferRegion", "MatchBufferRegion")
    },
    **{
        name: f"armillary.tir.blocks.producers:{name}" for name in ("ProducerRealize", "ProducerStore", "verify_stages")
    },
    "call_intrin": "armillary.tir.intrinsics:call_intrin",
    "register_intrin_lowering": "armillary.tir.transform.lower_intrin:register_intrin_lowering",
    "PrimExpr": "armillary.tir.expr:Expr",
    "Range": "armillary.tir.expr:Range",
    "decl_buffer": "armillary.tir.ir_builder:decl_buffer",
    "Schedule": "armillary.tir.schedule.schedule:Schedule",
    "ScheduleError": "armillary.errors:ScheduleError",
    **{name: f"armillary.tir.schedule:{name}" for name in ("IndexMap", "ScheduleState", "TensorIntrin")},
    "StmtSRef": "armillary.tir.schedule.handles:StmtSRef",
    "lower": "armillary.tir.lower",
    "schedule": "armillary.tir.schedule",
    "interpret": "armillary.tir.interpreter:interpret",
    "simplify": "armillary.tir.simplify",
    "stmt_list": "armillary.tir.stmt:stmt_list",
    "stmt_seq": "armillary.tir.stmt:seq",
}
__getattr__, __dir__ = lazy_names(__name__, _TABLE)
