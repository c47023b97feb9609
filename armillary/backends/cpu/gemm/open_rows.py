"""Matrix products whose number of rows is a named size: register tiles over packed weights, and a tail.

In: a fused function anchored at nn.contrib_dense_pack, over tensors with named sizes. Out: a schedule whose loop over
tiles of rows has a symbolic count: full tiles without conditions, and a last one whose rows are tested. Invariant: the
weights' blocks, the columns of a tile and the sum are those of the fixed form, chosen for the sizes' typical values.
"""

from __future__ import annotations

from dataclasses import replace

from armillary import te
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import schedule_injective, schedule_stage
from armillary.backends.cpu.gemm.space import PRODUCT, block_of, many_rows_choice
from armillary.backends.cpu.loops import accumulator_of, compute_in_tile, followers, fuse_all
from armillary.backends.cpu.space import chosen, tile_of
from armillary.backends.registry import Fused, Version, Versions, implement
from armillary.backends.workload import Workload
from armillary.relay.expr import Call, shape_of
from armillary.relay.infer import infer_type
from armillary.target.cpu import cpu_model


def by_rows(call: Call, workload: Workload) -> Versions | None:
    """A tile for one row, and one for more, where rows are a size that is typically one: weights come once for all."""
    choice, shape = many_rows_choice(workload.typical, cpu_model(workload.target)), shape_of(call)
    if not choice or shape is None:
        return None
    many = Call(call.op, call.args, replace(call.attrs, choice=str(choice)), call.span)
    infer_type(many)
    return Versions(shape[0], 2, (Version(call, ((shape[0], 1),)),), many)


@implement("open_rows", family="cpu", versions=by_rows)
def open_rows(schedule: te.Schedule, fused: Fused) -> None:
    """Rows x vectors register tile; the loop over tiles of rows is cut where the last one is not full."""
    cpu = cpu_model(fused.workload.target)
    (anchor,) = fused.anchor
    product = anchor if anchor.op.reduce_axis else anchor.op.input_tensors[0]
    retained = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    if len(fused.outputs) != 1 or te.extents(output) != te.extents(product):
        output = product
    after = (
        [t for t in followers(schedule, product, retained) if t.op is not output.op]
        if output.op is not product.op
        else []
    )
    for tensor in retained:
        if tensor.op is not product.op and tensor.op is not output.op and tensor not in after:
            schedule_stage(schedule, tensor, cpu)
    tile = tile_of(chosen(fused.workload, PRODUCT))
    lanes = min(lanes_of(cpu, product.dtype), block_of(fused.workload))
    accumulator = accumulator_of(schedule, product, output)
    stage = schedule[output]
    *outer, row, column = stage.op.axis
    rows, row = stage.split(row, factor=tile.rows)
    columns, column = stage.split(column, factor=tile.vectors * lanes)
    sub, vector = stage.split(column, factor=lanes)
    stage.reorder(*outer, columns, rows, row, sub, vector)
    stage.vectorize(vector)
    stage.unroll(row)
    stage.unroll(sub)
    stage.parallel(fuse_all(stage, [*outer, columns]))  # the loop over rows stays one, so that it can be cut
    compute_in_tile(schedule, after, stage, rows)
    inside = schedule[accumulator]
    inside.compute_at(stage, rows)
    *_, row, column = inside.op.axis
    sub, vector = inside.split(column, factor=lanes)
    inside.reorder(*inside.op.axis[:-2], *inside.op.reduce_axis, row, sub, vector)
    inside.vectorize(vector)
    inside.unroll(row)
    inside.unroll(sub)
