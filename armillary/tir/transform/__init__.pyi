"""Names of `armillary.tir.transform` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.tir.transform.scripts.modules import AnnotateDeviceRegions as AnnotateDeviceRegions
from armillary.tir.transform.scripts.modules import AnnotateEntryFunc as AnnotateEntryFunc
from armillary.tir.transform.scripts.modules import Apply as Apply
from armillary.tir.transform.bf16_legalize import BF16Legalize as BF16Legalize
from armillary.tir.transform.scripts.modules import BindTarget as BindTarget
from armillary.tir.transform.scripts.modules import CombineContextCall as CombineContextCall
from armillary.tir.transform.common_subexpr_elim_tir import CommonSubexprElimTIR as CommonSubexprElimTIR
from armillary.tir.transform.compact_buffer_allocation import CompactBufferAllocation as CompactBufferAllocation
from armillary.tir.transform.scripts.blocks import ConvertBlocksToOpaque as ConvertBlocksToOpaque
from armillary.tir.transform.scripts.modules import DecorateDeviceScope as DecorateDeviceScope
from armillary.tir.transform.scripts.modules import Filter as Filter
from armillary.tir.transform.storage_flatten import FlattenBuffer as FlattenBuffer
from armillary.tir.transform.hoist_if_then_else import HoistIfThenElse as HoistIfThenElse
from armillary.tir.transform.scripts.modules import InferFragment as InferFragment
from armillary.tir.transform.inject_double_buffer import InjectDoubleBuffer as InjectDoubleBuffer
from armillary.tir.transform.inject_prefetch import InjectPrefetch as InjectPrefetch
from armillary.tir.transform.inject_virtual_thread import InjectVirtualThread as InjectVirtualThread
from armillary.tir.transform.assertions import InstrumentBoundCheckers as InstrumentBoundCheckers
from armillary.tir.transform.loop_partition import LoopPartition as LoopPartition
from armillary.tir.transform.scripts.datatypes import LowerCustomDatatypes as LowerCustomDatatypes
from armillary.tir.transform.scripts.modules import LowerDeviceKernelLaunch as LowerDeviceKernelLaunch
from armillary.tir.transform.scripts.modules import LowerDeviceStorageAccessInfo as LowerDeviceStorageAccessInfo
from armillary.tir.transform.scripts.blocks import LowerInitBlock as LowerInitBlock
from armillary.tir.transform.lower_intrin import LowerIntrin as LowerIntrin
from armillary.tir.transform.scripts.blocks import LowerMatchBuffer as LowerMatchBuffer
from armillary.tir.transform.scripts.blocks import LowerOpaqueBlock as LowerOpaqueBlock
from armillary.tir.transform.scripts.modules import LowerTVMBuiltin as LowerTVMBuiltin
from armillary.tir.transform.scripts.modules import LowerThreadAllreduce as LowerThreadAllreduce
from armillary.tir.transform.scripts.modules import LowerWarpMemory as LowerWarpMemory
from armillary.tir.transform.scripts.modules import MakePackedAPI as MakePackedAPI
from armillary.tir.transform.scripts.modules import MakeUnpackedAPI as MakeUnpackedAPI
from armillary.tir.transform.scripts.modules import MergeSharedMemoryAllocations as MergeSharedMemoryAllocations
from armillary.tir.transform.narrow_data_type import NarrowDataType as NarrowDataType
from armillary.tir.transform.plan_and_update_buffer_allocation_location import PlanAndUpdateBufferAllocationLocation as PlanAndUpdateBufferAllocationLocation
from armillary.transform import Pass as PrimFuncPass
from armillary.tir.transform.assertions import RemoveAssert as RemoveAssert
from armillary.tir.transform.remove_no_op import RemoveNoOp as RemoveNoOp
from armillary.tir.transform.rewrite_unsafe_select import RewriteUnsafeSelect as RewriteUnsafeSelect
from armillary.tir.transform.simplify import Simplify as Simplify
from armillary.tir.transform.assertions import RemoveAssert as SkipAssert
from armillary.tir.transform.scripts.modules import SplitHostDevice as SplitHostDevice
from armillary.tir.transform.storage_flatten import StorageFlatten as StorageFlatten
from armillary.tir.transform.storage_rewrite import StorageRewrite as StorageRewrite
from armillary.tir.transform.scripts.modules import ThreadSync as ThreadSync
from armillary.tir.transform.unroll_loop import UnrollLoop as UnrollLoop
from armillary.tir.transform.vectorize_loop import VectorizeLoop as VectorizeLoop
from armillary.tir.transform.scripts.modules import VerifyMemory as VerifyMemory
from armillary.tir.transform.loop_pass import prim_func_pass as prim_func_pass

__all__ = [
    "AnnotateDeviceRegions",
    "AnnotateEntryFunc",
    "Apply",
    "BF16Legalize",
    "BindTarget",
    "CombineContextCall",
    "CommonSubexprElimTIR",
    "CompactBufferAllocation",
    "ConvertBlocksToOpaque",
    "DecorateDeviceScope",
    "Filter",
    "FlattenBuffer",
    "HoistIfThenElse",
    "InferFragment",
    "InjectDoubleBuffer",
    "InjectPrefetch",
    "InjectVirtualThread",
    "InstrumentBoundCheckers",
    "LoopPartition",
    "LowerCustomDatatypes",
    "LowerDeviceKernelLaunch",
    "LowerDeviceStorageAccessInfo",
    "LowerInitBlock",
    "LowerIntrin",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "LowerTVMBuiltin",
    "LowerThreadAllreduce",
    "LowerWarpMemory",
    "MakePackedAPI",
    "MakeUnpackedAPI",
    "MergeSharedMemoryAllocations",
    "NarrowDataType",
    "PlanAndUpdateBufferAllocationLocation",
    "PrimFuncPass",
    "RemoveAssert",
    "RemoveNoOp",
    "RewriteUnsafeSelect",
    "Simplify",
    "SkipAssert",
    "SplitHostDevice",
    "StorageFlatten",
    "StorageRewrite",
    "ThreadSync",
    "UnrollLoop",
    "VectorizeLoop",
    "VerifyMemory",
    "prim_func_pass",
]
