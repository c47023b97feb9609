"""When a product of bytes or bfloat16 is made by matrix tiles (AMX), and what that is expected to take.

In: a workload of a product. Out: None or why not; the explanation. Invariant: no tensor expression is imported; amx.py
makes the loops. Panels of tiles: amx_panels.py.
"""

from __future__ import annotations

import math

from armillary.backends.cpu.conv2d.amx.cost import DEPTH
from armillary.backends.cpu.cost.model import Estimate, explained
from armillary.backends.cpu.gemm.amx_panel_cost import COLUMNS, ranked
from armillary.backends.cpu.gemm.space import is_transposed
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import in_word
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model


def is_packed(workload: Workload) -> bool:
    """Whether the right-hand side is a constant that was packed when compiling."""
    return workload.op.name == "nn.contrib_dense_pack"


def sizes_of(workload: Workload) -> tuple[int, int, int]:
    """Rows of one product, columns in sixteens, and the tiles of terms of a sum."""
    data, other = workload.types
    assert isinstance(data, TensorType) and isinstance(other, TensorType), "inference has checked"
    steps = -(-data.static[-1] * data.dtype.bytes // DEPTH)
    if is_packed(workload):
        return math.prod(data.static[:-1]), other.static[0], steps
    columns = other.static[-2 if is_transposed(workload.attrs, "b") else -1]
    rows = data.static[-2] if workload.op.name == "nn.batch_matmul" else math.prod(data.static[:-1])
    return rows, -(-columns // COLUMNS), steps


def refuses(workload: Workload) -> str | None:
    """None, or why matrix tiles do not compute it."""
    data, other = workload.types
    cpu = cpu_model(workload.target)
    if not isinstance(data, TensorType) or not isinstance(other, TensorType) or data.ndim < 2:
        return "only products of bytes and bfloat16 have tiles"
    if not in_word(data.dtype, other.dtype, workload.attrs.out_dtype):
        return "only products of bytes and bfloat16 have tiles"
    rows, _, steps = sizes_of(workload)
    terms = data.static[-1] if is_packed(workload) else steps * DEPTH // data.dtype.bytes
    if workload.target.kind.name != "llvm" or not cpu.takes_tiles(rows, terms, data.dtype.bits):
        return f"the processor has no matrix tiles for {rows} rows of {terms} terms"
    fills = other.static[2:3] == (COLUMNS,) if is_packed(workload) else not _is_odd(workload, other.static)
    return None if fills else "an operand does not fill tiles"


def _is_odd(workload: Workload, other: tuple[int, ...]) -> bool:
    columns = other[-2 if is_transposed(workload.attrs, "b") else -1]
    return columns < COLUMNS or bool(getattr(workload.attrs, "transpose_a", False))


def explain(workload: Workload) -> Explanation:
    """The block of tiles against the others."""
    cpu = cpu_model(workload.target)
    rows = ranked(*sizes_of(workload), cpu)
    estimates = [Estimate(f"{panel} tiles", cycles, "matrix tiles") for panel, cycles in rows]
    data = workload.tensor(0)
    what = "bytes" if data.dtype.bits == 8 else "bfloat16"
    return explained(f"product of {what} by matrix tiles", f"{rows[0][0]}", estimates, cpu)
