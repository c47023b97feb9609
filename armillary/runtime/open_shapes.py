"""Shapes of a graph over named sizes as they were compiled: numbers, and texts of expressions over the sizes.

In: an executor, and values for sizes. Out: shapes by input and output, and these at given or typical values. Invariant:
what an executor itself tells are the present values. Who binds sizes before a run: native/arm_sizes.c.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.artifact import GraphSpec
from armillary.base.extent import Extent, Size, substitute
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.runtime.executor import GraphExecutor

with deferred():  # most packages have no sizes
    from armillary.text.extent import parse_extent

Shape = tuple[int | str, ...]


@record
class OpenShapes:
    """The shapes of inputs by name and of outputs by number, and the sizes that they are expressions over."""

    inputs: Mapping[str, Shape]
    outputs: tuple[Shape, ...]
    sizes: Mapping[str, Size]


def open_shapes(executor: object) -> OpenShapes | None:
    """The shapes of an executor's graph; None where all of them are numbers, and for one on another machine."""
    if not isinstance(executor, GraphExecutor) or not executor.sized_json:
        return None
    spec = GraphSpec.from_json(executor.sized_json.decode())
    inputs = {spec.nodes[n].name: spec.shapes[spec.entry(n)] for n in spec.arg_nodes}
    free = {name: inputs[name] for name in executor.free_inputs if name in inputs}
    heads = tuple(spec.shapes[spec.entry(head[0], head[1])] for head in spec.heads)
    sizes = (Size(row.name, row.low, row.high, row.step, row.typical) for row in spec.sizes)
    return OpenShapes(free, heads, {size.name: size for size in sizes})


def at_sizes(shape: Shape, values: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with values for its sizes."""
    dims = (parse_extent(dim) if isinstance(dim, str) else dim for dim in shape)
    bound = (substitute(dim, values) if isinstance(dim, Extent) else dim for dim in dims)
    return tuple(dim for dim in bound if isinstance(dim, int))
