"""Products of matrices by tiles.

In: the schedule of a fused nn.dense, nn.matmul or nn.batch_matmul in float32 or float16. Out: one kernel in which a
work-group computes rows times columns. Invariant: as in `tiled.py`; few rows are left to the default, which gives each
sum to a group.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.points import matrix_product
from armillary.backends.opencl.schedules.default import static_extent
from armillary.backends.opencl.schedules.tiled import Place, schedule_tiled
from armillary.backends.opencl.space import MIN_ROWS, PRODUCT, Tiling, chosen_tiling, names_another
from armillary.backends.opencl.tiles import FLOATS
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.relay.types import tensor_fields


def _objection(workload: Workload) -> str | None:
    other = names_another(workload, PRODUCT)
    if other:
        return other
    fields = [field for ty in workload.types for field in tensor_fields(ty)]
    if any(str(field.dtype) not in FLOATS for field in fields):
        return "it is in neither float32 nor float16"
    return None if len(fields[0].shape) > 1 else "it is the product of a vector"


def product_tiled(schedule: te.Schedule, fused: Fused) -> None:
    """A product by tiles, with what follows it."""

    def choose(op: te.ComputeOp) -> tuple[Tiling, tuple[Place, ...]] | None:
        (terms,) = (static_extent(axis) for axis in op.reduce_axis)
        work = matrix_product(tuple(static_extent(axis) for axis in op.axis), terms)
        tiling = chosen_tiling(fused.workload, PRODUCT, work) if work.result[0] >= MIN_ROWS else None
        if tiling is None:
            return None
        (over_y, _, over_x), (own_y, _, own_x) = tiling.tile.threads, tiling.tile.sums
        return tiling, (Place(over_y, own_y, "y"), Place(over_x, own_x, "x"))

    schedule_tiled(schedule, fused, choose)


for _name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
    implement(_name, family="opencl", name="product_tiled", when=_objection)(product_tiled)
