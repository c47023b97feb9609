"""When a product with few columns has the terms of its sums in lanes, and what that is expected to take.

In: a workload of nn.dense, nn.matmul or nn.batch_matmul. Out: None or why not; the explanation. Invariant: no tensor
expression is imported; narrow.py makes the loops.
"""

from __future__ import annotations

from armillary.backends.cpu.cost.model import Estimate, explained
from armillary.backends.cpu.cost.narrow import has_terms_in_lanes, narrow_cycles, narrow_tile
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model


def sizes_of(workload: Workload) -> tuple[int, int, int]:
    """Rows along the longest axis, columns, and terms of a sum."""
    data = workload.tensor(0)
    result = workload.result
    leading = result.static[:-1] if workload.op.name == "nn.dense" else result.static[-2:-1]
    return max(leading), result.static[-1], data.static[-1]


def refuses(workload: Workload) -> str | None:
    """Rows that are contiguous, few columns, and a sum that is long enough for them."""
    data, other = workload.types
    if not isinstance(data, TensorType) or not isinstance(other, TensorType):
        return "not of two tensors"
    if any(str(ty.dtype) != "float32" for ty in (data, other)) or workload.attrs.out_dtype not in ("", "float32"):
        return "only float32 has its terms in lanes"
    if data.ndim < 2 or getattr(workload.attrs, "transpose_a", False):
        return "the rows are not contiguous"
    rows, columns, terms = sizes_of(workload)
    if has_terms_in_lanes(rows, columns, terms, cpu_model(workload.target)):
        return None
    return f"{columns} columns of {terms} terms take no longer with columns in lanes"


def explain(workload: Workload) -> Explanation:
    """The tile, and what it is expected to take."""
    cpu = cpu_model(workload.target)
    rows, columns, terms = sizes_of(workload)
    tile = narrow_tile(rows, columns, terms, cpu)
    result = workload.result
    cycles = narrow_cycles(rows, columns, terms, cpu) * result.size / max(1, rows * columns)
    rows_of = [Estimate(f"tile {tile}", cycles, "FMA units")]
    return explained("product with terms in lanes", f"{tile}", rows_of, cpu)
