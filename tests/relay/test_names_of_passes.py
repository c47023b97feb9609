"""Every pass and configuration key of the Relay era's build, by the name and arguments that scripts use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary as tvm
from armillary import relay, te, tir
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.transform.pipeline import build_passes
from armillary.transform import PASSES, Pass, PassContext, PassInfo, PassInstrument, find_pass

RELAY: dict[str, tuple[Any, ...]] = {
    "RemoveUnusedFunctions": (["main"],),
    "ToBasicBlockNormalForm": (),
    "Legalize": (),
    "SimplifyInference": (),
    "DynamicToStatic": (),
    "EliminateCommonSubexpr": (None,),
    "SimplifyExpr": (),
    "CombineParallelConv2D": (3,),
    "CombineParallelDense": (3,),
    "CombineParallelBatchMatmul": (3,),
    "FoldConstant": (),
    "FoldScaleAxis": (),
    "BackwardFoldScaleAxis": (),
    "ForwardFoldScaleAxis": (),
    "CanonicalizeCast": (),
    "CanonicalizeOps": (),
    "FlattenAtrousConv": (),
    "AlterOpLayout": (),
    "ConvertLayout": ({"nn.conv2d": ["NHWC", "default"]},),
    "FastMath": (),
    "DeviceAnnotation": (),
    "PlanDevices": (),
    "FuseOps": (-1,),
    "Inline": (),
    "InferType": (),
    "LabelOps": (),
    "ToMixedPrecision": ("float16", 1),
    "MergeComposite": ([],),
    "AnnotateTarget": ("lib",),
    "MergeCompilerRegions": (),
    "PartitionGraph": (),
    "SimplifyExprPostAlterOp": (),
    "DefuseOps": (),
    "ToANormalForm": (),
    "ToGraphNormalForm": (),
    "DeadCodeElimination": (),
}
TIR: dict[str, tuple[Any, ...]] = {
    "InjectPrefetch": (),
    "StorageFlatten": (64, False),
    "FlattenBuffer": (),
    "BF16Legalize": (),
    "NarrowDataType": (32,),
    "Simplify": (),
    "LoopPartition": (),
    "VectorizeLoop": (True,),
    "InjectVirtualThread": (),
    "InjectDoubleBuffer": (),
    "StorageRewrite": (),
    "UnrollLoop": (),
    "RemoveNoOp": (),
    "RewriteUnsafeSelect": (),
    "HoistIfThenElse": (),
    "InstrumentBoundCheckers": (),
    "CommonSubexprElimTIR": (),
    "LowerIntrin": (),
    "CompactBufferAllocation": (),
    "PlanAndUpdateBufferAllocationLocation": (),
}
BUILD = (
    "RemoveUnusedFunctions",
    "ToBasicBlockNormalForm",
    "PlanDevices",
    "QnnLegalize",
    "QnnCanonicalize",
    "Legalize",
    "SimplifyInference",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "SimplifyExpr",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "CombineParallelBatchMatmul",
    "FoldConstant",
    "FoldScaleAxis",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "FlattenAtrousConv",
    "AlterOpLayout",
    "SimplifyExprPostAlterOp",
    "FastMath",
    "FoldConstant",
    "FuseOps",
    "Inline",
    "InferType",
    "LabelOps",
)


@pytest.mark.parametrize("name", RELAY)
def test_graph_passes_are_made_by_their_name(name: str) -> None:
    made = getattr(relay.transform, name)(*RELAY[name])
    assert isinstance(made, Pass)
    assert find_pass(name).info == made.info


@pytest.mark.parametrize("name", TIR)
def test_loop_passes_are_made_by_their_name(name: str) -> None:
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="B")
    made = getattr(tir.transform, name)(*TIR[name])
    assert made.info.name.startswith("tir.")
    module = IRModule({"main": te.lower_schedule(te.create_schedule(b.op), [a, b])})
    assert "B" in made(tir.transform.StorageFlatten()(module)).astext()


def test_the_build_has_the_passes_of_the_text_in_order() -> None:
    names = [item.name for item in build_passes("llvm")]
    position = -1
    for name in BUILD:
        position = names.index(name, position + 1)


def test_passes_of_the_text_begin_in_its_order() -> None:
    """Also as instruments see them: passes of our own stand between, and some of the text's run again behind them."""
    seen: list[str] = []

    class Names(PassInstrument):
        def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
            seen.append(info.name)

    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.bias_add(relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32"))), relay.var("b", shape=(4,)))
    with PassContext(opt_level=4, instruments=[Names()]):
        relay.build(IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y)), "llvm")
    prefix = BUILD[: BUILD.index("FlattenAtrousConv")]
    assert [name for name in dict.fromkeys(seen) if name in prefix] == list(prefix)
    assert seen[seen.index("FastMath") + 1] == "FoldConstant"
    assert "FoldConstant" not in seen[: seen.index("SimplifyExpr")]


def test_every_pass_has_one_spec_name_and_one_relay_era_name() -> None:
    with PassContext():
        find_pass("FuseOps")
    names = [d.info.name for d in PASSES.values()]
    assert len(names) == len(set(names))
    assert all(spec == d.info.spec for spec, d in PASSES.items())
    assert all((d.__doc__ or "").strip() for d in PASSES.values())


def test_the_configuration_of_the_text_is_accepted() -> None:
    keys = {
        "tir.noalias": True,
        "tir.detect_global_barrier": False,
        "tir.instrument_bound_checkers": True,
        "tir.disable_assert": True,
        "tir.disable_vectorize": True,
        "tir.add_lower_pass": [],
    }
    x = relay.var("x", shape=(1, 4))
    module = IRModule.from_expr(Function([x], relay.nn.relu(x)))
    context = tvm.transform.PassContext(opt_level=3, disabled_pass=[], required_pass=[], config=keys)
    with context, pytest.warns(DeprecationWarning, match="old form"):
        graph, library, params = relay.build(module, target="c", params=None)
    assert "fused_nn_relu" in graph
    assert "int32_t fused_nn_relu" in library.get_source()
    assert params == {}


def test_qnn_passes_stand_in_their_namespace() -> None:
    assert relay.qnn.transform.Legalize().name == "QnnLegalize"
    assert relay.qnn.transform.CanonicalizeOps().name == "QnnCanonicalize"
    with pytest.raises(AttributeError, match=r"no operator relay.qnn.transfrm"):
        _ = relay.qnn.transfrm
