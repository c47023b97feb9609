"""The record of the CPU back end: targets of the kinds llvm and c.

In: nothing. Out: `BACKEND`. Invariant: importing it loads passes over graphs, no schedule, no emitter and no pass over
loops: a build whose kernels are all in the cache needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from armillary.backends.base import Backend, GraphPasses
from armillary.backends.cpu.graph._bf16_products import notes_of
from armillary.backends.cpu.graph.alter_op_layout import alter_op_layout
from armillary.backends.cpu.graph.apply_records import apply_records
from armillary.backends.cpu.graph.choose_kernels import choose_kernels
from armillary.backends.cpu.graph.merge_groups import merge_groups
from armillary.backends.cpu.graph.narrow_weights import narrow_weights
from armillary.backends.cpu.graph.pad_channels import pad_channels
from armillary.backends.cpu.graph.pad_units import pad_units
from armillary.backends.cpu.graph.round_operands import round_operands
from armillary.backends.cpu.graph.store_bfloat16 import store_bfloat16
from armillary.backends.cpu.graph.transpose_as_shuffle import transpose_as_shuffle
from armillary.backends.cpu.graph.trim_weights import trim_weights
from armillary.backends.cpu.graph.use_algorithms import use_algorithms
from armillary.backends.small_floats.graph.widen_small_floats import widen_small_floats
from armillary.base.lazy import deferred
from armillary.codegen.llvm.target import machine_text
from armillary.relay.transform.check_choices import check_choices
from armillary.relay.transform.layout.channels_first import channels_first
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.target import Target
from armillary.target.cpu import needed_features
from armillary.transform import Pass, PassContext

with deferred():
    from armillary.backends.cpu import select as _select
    from armillary.backends.cpu.graph._collapse_rows import collapse_rows as _collapse_rows
    from armillary.codegen.build import build_functions as _build_functions
    from armillary.codegen.build import emit_functions as _emit_functions
    from armillary.tir.transform.split_phases import split_phases as _split_phases


def _chosen() -> Sequence[str]:
    """Operators whose choice `schedule.choice` overrules."""
    return ("nn.conv2d", "nn.dense", "nn.batch_matmul", *(op for op, tuned in _select.TUNED.items() if tuned.knobs))


def _plain(target: Target) -> Sequence[Pass]:
    # Channels come second, unless layouts are to stay as they were written.
    is_blocked = PassContext.current().pass_enabled(alter_op_layout.info)
    return [infer_type.bind(), channels_first.bind()] if is_blocked else []


def _types(target: Target) -> Sequence[Pass]:
    # 16-bit floats are formats of memory; arithmetic is in float32.
    return [widen_small_floats.bind(notes=partial(notes_of, target=target))]


def _axes(target: Target) -> Sequence[Pass]:
    # Transpositions of channels are shuffles of whole blocks.
    return [transpose_as_shuffle.bind(target=target, axes=(1,))]


def _layouts(target: Target) -> Sequence[Pass]:
    return [
        # Products that may be in bfloat16 are, where the target multiplies it.
        infer_type.bind(),
        round_operands.bind(target=target),
        # Channels in blocks of a vector; weights packed: the last change of layout. Calls carry what a script chooses.
        infer_type.bind(),
        transpose_as_shuffle.bind(target=target, axes=(2,)),
        infer_type.bind(),
        pad_channels.bind(target=target),
        merge_groups.bind(target=target),
        pad_units.bind(target=target),
        check_choices.bind(operators=_chosen),
        alter_op_layout.bind(target=target),
        # Calls carry the choices of tuning records; each convolution has its algorithm.
        apply_records.bind(target=target),
        use_algorithms.bind(target=target, phase="layouts"),
    ]


def _weights(target: Target) -> Sequence[Pass]:
    # Zeros that fill up channels, and bits that weights do not use, are made when they are loaded, where many.
    return [trim_weights.bind(), narrow_weights.bind(target=target)]


def _operators(target: Target) -> Sequence[Pass]:
    # Operators are those of the algorithms that read data as it lies.
    return [use_algorithms.bind(target=target, phase="operators")]


def _kernels(target: Target) -> Sequence[Pass]:
    # A kernel computes two contractions where what lies between would leave the caches.
    return [use_algorithms.bind(target=target, phase="kernels"), store_bfloat16.bind()]


def _choices(target: Target) -> Sequence[Pass]:
    # Each kernel's algorithm, tile and cost are on its anchor.
    return [choose_kernels.bind(target=target), infer_type.bind()]


_ALGORITHMS = ("attention", "conv2d", "elementwise", "gemm", "pool", "reduce")  # folders
BACKEND = Backend(
    family="cpu",
    algorithms=tuple(f"{__package__}.{name}" for name in _ALGORITHMS),
    lower=_split_phases,
    emit=_emit_functions,
    build=_build_functions,
    passes=GraphPasses(_types, _axes, _layouts, _weights, _operators, _kernels, _choices, _plain),
    candidates=lambda op: _select.candidates_of(op),
    kernel_function=_collapse_rows,
    machine=machine_text,
    needs=needed_features,
)
