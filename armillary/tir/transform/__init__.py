"""The loop passes, one file each; `armillary.tir.transform.Simplify()` gives a `Pass` over modules.

In and out of every pass: `PrimFunc -> PrimFunc` (the function with the file's name), applied to each function of a
module. Invariant: a function that a pass does not change is returned as it is. Order: `tir/lower.py`.
Shared: `loop_pass.py`. `split_phases` ends the pipeline and returns a `PhasedFunction`.
"""

from armillary.base.lazy import lazy_names

_PASSES = {
    "StorageFlatten": ("storage_flatten", "StorageFlatten"),
    "FlattenBuffer": ("storage_flatten", "FlattenBuffer"),
    "Simplify": ("simplify", "Simplify"),
    "LoopPartition": ("loop_partition", "LoopPartition"),
    "VectorizeLoop": ("vectorize_loop", "VectorizeLoop"),
    "InjectVirtualThread": ("inject_virtual_thread", "InjectVirtualThread"),
    "InjectDoubleBuffer": ("inject_double_buffer", "InjectDoubleBuffer"),
    "StorageRewrite": ("storage_rewrite", "StorageRewrite"),
    "UnrollLoop": ("unroll_loop", "UnrollLoop"),
    "RemoveNoOp": ("remove_no_op", "RemoveNoOp"),
    "RemoveAssert": ("assertions", "RemoveAssert"),
    "RewriteUnsafeSelect": ("rewrite_unsafe_select", "RewriteUnsafeSelect"),
    "HoistIfThenElse": ("hoist_if_then_else", "HoistIfThenElse"),
    "InjectPrefetch": ("inject_prefetch", "InjectPrefetch"),
    "CommonSubexprElimTIR": ("common_subexpr_elim_tir", "CommonSubexprElimTIR"),
    "CompactBufferAllocation": ("compact_buffer_allocation", "CompactBufferAllocation"),
    "PlanAndUpdateBufferAllocationLocation": (
        "plan_and_update_buffer_allocation_location",
        "PlanAndUpdateBufferAllocationLocation",
    ),
    "ConvertBlocksToOpaque": ("scripts.blocks", "ConvertBlocksToOpaque"),
    "LowerInitBlock": ("scripts.blocks", "LowerInitBlock"),
    "LowerMatchBuffer": ("scripts.blocks", "LowerMatchBuffer"),
    "LowerOpaqueBlock": ("scripts.blocks", "LowerOpaqueBlock"),
    "LowerIntrin": ("lower_intrin", "LowerIntrin"),
    "NarrowDataType": ("narrow_data_type", "NarrowDataType"),
    "BF16Legalize": ("bf16_legalize", "BF16Legalize"),
    "InstrumentBoundCheckers": ("assertions", "InstrumentBoundCheckers"),
}
_TABLE = {name: f"armillary.tir.transform.{file}:{attribute}" for name, (file, attribute) in _PASSES.items()}
_OF_MODULES = (
    "AnnotateDeviceRegions AnnotateEntryFunc Apply BindTarget CombineContextCall DecorateDeviceScope Filter "
    "InferFragment LowerDeviceKernelLaunch LowerDeviceStorageAccessInfo LowerTVMBuiltin LowerThreadAllreduce "
    "LowerWarpMemory MakePackedAPI MakeUnpackedAPI MergeSharedMemoryAllocations SplitHostDevice ThreadSync VerifyMemory"
)
_TABLE |= {name: f"armillary.tir.transform.scripts.modules:{name}" for name in _OF_MODULES.split()}
_TABLE["SkipAssert"] = _TABLE["RemoveAssert"]
_TABLE["LowerCustomDatatypes"] = "armillary.tir.transform.scripts.datatypes:LowerCustomDatatypes"
_TABLE["PrimFuncPass"] = "armillary.transform:Pass"
_TABLE["prim_func_pass"] = "armillary.tir.transform.loop_pass:prim_func_pass"
__getattr__, __dir__ = lazy_names(__name__, _TABLE)


def load_all() -> None:
    """Import every loop pass: each registers itself."""
    for name in _PASSES:
        __getattr__(name)
