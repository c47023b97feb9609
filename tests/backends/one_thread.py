"""A back end of a page: C for one thread, channels last, convolutions by one algorithm. Nothing else knows of it.

In: nothing. Out: targets of kind `one_thread`, once this module is imported. Invariant: everything a family of targets
is stands here: its kind, graph passes, schedules, emitter; it takes what any back end may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary import te
from armillary.artifact import Descriptor
from armillary.backends.base import Backend, GraphPasses, register_backend
from armillary.backends.candidate import Candidate
from armillary.backends.registry import Fused, default_schedule, implement
from armillary.backends.workload import Workload
from armillary.base.files import scratch_folder
from armillary.codegen.build import CompiledModule, function_row
from armillary.codegen.c.source import emit_source
from armillary.codegen.toolchain import compile_c
from armillary.codegen.workers.cache import Cache
from armillary.relay.transform.layout.convert_layout import convert_layout
from armillary.target import Target
from armillary.target.kind import TargetKind
from armillary.target.kinds import register_kind
from armillary.te.schedule import AutoInlineInjective
from armillary.tir.phases import PhasedFunction
from armillary.tir.stmt import PrimFunc
from armillary.tir.transform.split_phases import split_phases
from armillary.transform import Pass

FAMILY = "one_thread"
register_kind(TargetKind(FAMILY, device_type=1, codegen=__name__, family=FAMILY, default_keys=(FAMILY,)))


def layouts(target: Target) -> Sequence[Pass]:
    """Channels last, so that the innermost loop of a convolution runs over them."""
    return [convert_layout.bind(desired_layouts={"nn.conv2d": ["NHWC", "HWIO"]})]


@default_schedule(FAMILY)
def plain_loops(schedule: te.Schedule, fused: Fused) -> None:
    """Loops as the expressions say, with what is cheap inlined."""
    AutoInlineInjective(schedule)


def is_other_layout(workload: Workload) -> str | None:
    """Why the algorithm below does not compute a convolution."""
    layout = workload.attrs.data_layout
    return None if layout == "NHWC" else f"it sums over channels that lie together, the data is in {layout}"


@implement(Candidate("nn.conv2d", "taps_outside", is_other_layout), family=FAMILY)
def taps_outside(schedule: te.Schedule, fused: Fused) -> None:
    """Taps and input channels are the outer loops of a pixel's sums; output channels, which lie together, the inner."""
    AutoInlineInjective(schedule)
    (convolution,) = fused.anchor
    stage, output = schedule[convolution], schedule[fused.outputs[0]]
    if stage is not output:
        stage.compute_at(output, output.op.axis[2])
    *_, channel = stage.op.axis
    stage.reorder(*stage.op.axis[:3], *stage.op.reduce_axis, channel)


def emit(functions: Sequence[PhasedFunction], target: Target) -> CompiledModule:
    """Sources alone."""
    rows = {function.name: function_row(function) for function in functions}
    sources = {function.name: emit_source(function) for function in functions}
    return CompiledModule(target, (), Descriptor(str(target), rows), sources, tuple(functions))


def build(
    functions: Sequence[PhasedFunction],
    target: Target,
    *,
    cache: Cache | None,
    jobs: int | None = None,
    tir: Mapping[str, PrimFunc] | None = None,
) -> CompiledModule:
    """Objects by the C compiler of this machine."""
    made = emit(functions, target)
    with scratch_folder() as folder:
        parts = [compile_c(text, folder / f"{n}.o", target) for n, text in enumerate(made.sources.values())]
        objects = tuple(part.read_bytes() for part in parts)
    return CompiledModule(target, objects, made.descriptor, made.sources, made.functions, dict(tir or {}))


register_backend(Backend(FAMILY, (__name__,), split_phases, emit, build, GraphPasses(layouts=layouts)))
