"""The schedule of a tensor expression with its choices left open: tiles, places, vectors, unrolled loops.

In: the tensors of a function, while a template runs (`autotvm.get_config`). Out: a `te.Schedule` in the configuration
that is in force. Invariant: what a configuration decides never changes which elements are computed. The rules, in the
order of the stages: elementwise stages are inlined (padding is computed in place or once, a knob); the reduction with
most terms gets register tiles inside cache tiles inside parallel tiles, its elementwise consumer or a copy of it being
the outer loops; other reductions run their rows in parallel. Known idea: Zheng and others, "Ansor", 2020, sketches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary import te
from armillary.autotvm.task.space import ConfigEntity, ConfigSpace
from armillary.autotvm.task.task import get_config
from armillary.base.node import post_order
from armillary.te.tensor import static_shape
from armillary.tir import expr as E
from armillary.tir.build import as_int

_VECTORS = (1, 4, 8, 16, 32)  # elements of an innermost loop without a reduction
REGISTERS = 256  # elements of a tile that is held while terms are added: 16 vectors of 16
WRITTEN_OUT = 64  # iterations of loops in a tile, besides the vector's


def sketch(tensors: Sequence[te.Tensor]) -> te.Schedule:
    """The schedule of tensors, inputs and outputs, in the configuration that is in force."""
    cfg = get_config()
    read = {id(t.op) for tensor in tensors if isinstance(tensor.op, te.ComputeOp) for t in tensor.op.input_tensors}
    outputs = [t for t in tensors if isinstance(t.op, te.ComputeOp) and id(t.op) not in read]
    s = te.create_schedule([t.op for t in outputs])
    computed = [stage.op for stage in s.stages if isinstance(stage.op, te.ComputeOp)]
    reductions = [op for op in computed if op.is_reduction]
    heavy = max(reductions, key=_terms, default=None)
    for number, op in enumerate(computed):
        if not op.is_reduction and op not in s.outputs:
            _inline(cfg, s, op, f"place_{number}")
    for op in reductions:
        if op is not heavy:
            _rows(s, op)
    if heavy is not None:
        _tiles(cfg, s, heavy, outputs)
    for output in outputs:
        if output.op not in reductions and not s[output].relations:
            _elementwise(cfg, s, output)
    return s


def _terms(op: te.ComputeOp) -> int:
    extents = [as_int(axis.dom.extent) for axis in (*op.axis, *op.reduce_axis) if axis.dom is not None]
    return int(np.prod([extent or 1 for extent in extents], dtype=np.int64))


def _is_padding(op: te.ComputeOp) -> bool:
    calls = (e for value in op.body for e in post_order(value) if isinstance(e, E.Select | E.Call))
    return any(isinstance(e, E.Select) or e.name == "if_then_else" for e in calls)


def _inline(cfg: ConfigSpace, s: te.Schedule, op: te.ComputeOp, knob: str) -> None:
    """An elementwise stage: in place, or, what pads, once."""
    if not _is_padding(op):
        s[op].compute_inline()
        return
    cfg.define_knob(knob, ["inline", "once"])
    if cfg[knob].val == "inline":
        s[op].compute_inline()
    else:
        _rows(s, op)


def _rows(s: te.Schedule, op: te.ComputeOp) -> None:
    """All axes but the last of an elementwise stage, or all of a reduction, are shared among threads."""
    axes = list(s[op].op.axis)
    outer = axes if op.is_reduction else axes[:-1]
    if outer:
        s[op].parallel(s[op].fuse(*outer) if len(outer) > 1 else outer[0])


def _elementwise(cfg: ConfigSpace, s: te.Schedule, output: te.Tensor) -> None:
    """One loop over all elements: shared among threads, a vector inside."""
    stage = s[output]
    axes = list(stage.op.axis)
    if not axes:
        return
    size = math.prod(static_shape(output))
    whole = stage.fuse(*axes) if len(axes) > 1 else axes[0]
    cfg.define_knob("vector", [n for n in _VECTORS if size % n == 0])
    outer, inner = stage.split(whole, cfg["vector"].val)
    stage.parallel(outer)
    stage.vectorize(inner)


def _tiles(cfg: ConfigSpace, s: te.Schedule, heavy: te.ComputeOp, outputs: Sequence[te.Tensor]) -> None:
    """Tiles of the reduction with most terms, in the loops of what reads it or of a copy."""
    source = heavy.output(0)
    readers = [t for t in outputs if t.op is not heavy and static_shape(t) == static_shape(source)]
    follows = (
        len(outputs) == 1
        and len(readers) == 1
        and not any(isinstance(st.op, te.ComputeOp) and st.op.is_reduction and st.op is not heavy for st in s.stages)
    )
    inner_tensor = source if follows else s.cache_write(source, "local")
    outer = s[readers[0] if follows else source]
    if follows:
        s[source].set_scope("local")
    parts = [_split(cfg, outer, k, axis) for k, axis in enumerate(outer.op.axis)]
    if not parts:
        return
    first, middle, last = ([part[level] for part in parts] for level in range(3))
    outer.reorder(*first, *middle, *last)
    inside = s[inner_tensor]
    inside.compute_at(outer, middle[-1])
    outer.vectorize(last[-1])
    outer.parallel(outer.fuse(*first) if len(first) > 1 else first[0])
    _register_tile(cfg, inside, [cfg[f"tile_{k}"].size[-1] for k in range(len(parts))])
    cfg.multi_filter(_fits)


def _split(cfg: ConfigSpace, stage: te.Stage, number: int, axis: te.IterVar) -> list[te.IterVar]:
    name = f"tile_{number}"
    cfg.define_split(name, cfg.axis(axis), num_outputs=3)
    return list(cfg[name].apply(stage.schedule, stage.op.output(0), axis))


def _register_tile(cfg: ConfigSpace, stage: te.Stage, sizes: Sequence[int]) -> None:
    """Terms outside, the tile inside: its last axis a vector, the others written out where they are few."""
    spatial = list(stage.op.axis)
    terms = []
    for k, axis in enumerate(stage.op.reduce_axis):
        cfg.define_split(f"terms_{k}", cfg.axis(axis), num_outputs=2)
        terms.append(list(cfg[f"terms_{k}"].apply(stage.schedule, stage.op.output(0), axis)))
    stage.reorder(*(pair[0] for pair in terms), *(pair[1] for pair in terms), *spatial)
    stage.vectorize(spatial[-1])
    if math.prod(sizes[:-1]) <= WRITTEN_OUT:
        for axis in spatial[:-1]:
            stage.unroll(axis)
    cfg.define_knob("unroll", [False, True])
    if cfg["unroll"].val and terms:
        stage.unroll(terms[-1][1])


def _fits(config: ConfigEntity) -> bool:
    """Whether a tile fits the registers, and what is written out a page."""
    tiles = [config[name].size[-1] for name in config if name.startswith("tile_")]
    inner = [config[name].size[-1] for name in config if name.startswith("terms_")]
    written = math.prod(tiles[:-1]) * (inner[-1] if inner and config["unroll"].val else 1)
    return math.prod(tiles) <= REGISTERS and written <= 8 * WRITTEN_OUT and all(n <= 64 for n in inner)
