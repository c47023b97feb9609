"""Which algorithms compute an operator on a CPU, in the order in which they are asked, and the choice for a kernel.

In: the workload of a kernel's anchor. Out: `decided`: its complete choice, of the first algorithm that does not refuse,
or of the one that a stored choice names. Invariant: no tensor expression is imported; the schedules that are registered
for these operators (backends/registry.py) are the same, in the same order, by a test. An operator without a row has one
way to be computed, or none whose configuration is a value yet.
To add an algorithm: a folder with its `space.py` and schedule, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.backends.cpu.conv2d.depthwise.space import DEPTHWISE
from armillary.backends.cpu.conv2d.direct.space import DIRECT
from armillary.backends.cpu.conv2d.fourier.space import FOURIER
from armillary.backends.cpu.conv2d.narrow_output import space as narrow_output
from armillary.backends.cpu.conv2d.winograd.space import WINOGRAD
from armillary.backends.cpu.gemm import space as gemm
from armillary.backends.cpu.gemm import space_amx, space_dots, space_narrow
from armillary.backends.cpu.space import Algorithm, chosen
from armillary.backends.workload import Reason, Workload
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.target.choice import Choice, Rejection, stored_choice


def _applies(workload: Workload) -> Reason:
    return None


@record
class Candidate:
    """An algorithm of an operator. `row`: its name in the registry; `algorithm`: None where nothing can be chosen."""

    row: str
    refuses: Callable[[Workload], Reason] = _applies
    algorithm: Algorithm | None = None


CANDIDATES: dict[str, tuple[Candidate, ...]] = {
    "nn.contrib_conv2d_NCHWc": (
        Candidate("narrow_output", narrow_output.refuses),
        Candidate("direct_blocked", algorithm=DIRECT),
    ),
    "cpu.conv2d_winograd_NCHWc": (Candidate("winograd", algorithm=WINOGRAD),),
    "cpu.conv2d_fourier_NCHWc": (Candidate("fourier", algorithm=FOURIER),),
    "nn.contrib_depthwise_conv2d_NCHWc": (Candidate("depthwise_blocked", algorithm=DEPTHWISE),),
    "nn.contrib_dense_pack": (
        Candidate("byte_tiles", space_amx.refuses),
        Candidate("packed_tile", algorithm=gemm.PRODUCT),
    ),
    "nn.dense": (
        Candidate("packing_tiles_dense", space_amx.refuses),
        Candidate("narrow_dense", space_narrow.refuses),
        Candidate("packing_words_dense", space_dots.refuses, gemm.PRODUCT),
        Candidate("packing_dense", gemm.refuses, gemm.PRODUCT),
    ),
    "nn.batch_matmul": (
        Candidate("packing_tiles", space_amx.refuses),
        Candidate("narrow_batch_matmul", space_narrow.refuses),
        Candidate("packing_words_batch_matmul", space_dots.refuses, gemm.PRODUCT),
        Candidate("packing_batch_matmul", gemm.refuses, gemm.PRODUCT),
    ),
}
TOGETHER = {  # kernels of two contractions that have a schedule of their own
    "nn.contrib_conv2d_NCHWc + nn.avg_pool2d",
    "nn.contrib_conv2d_NCHWc + nn.max_pool2d",
    "nn.contrib_depthwise_conv2d_NCHWc + nn.contrib_conv2d_NCHWc",
}


def decided(workload: Workload) -> Choice:
    """The complete choice for a kernel with this anchor; empty where there is nothing to choose."""
    stored, reasons = stored_choice(workload), list[Rejection]()
    is_named = _names_one(workload, stored)
    for candidate in CANDIDATES.get(workload.op.name, ()):
        if is_named and (candidate.algorithm is None or candidate.algorithm.name != stored.algorithm):
            continue
        reason = candidate.refuses(workload)
        if reason is None:
            return Choice() if candidate.algorithm is None else chosen(workload, candidate.algorithm, reasons)
        if reason:
            reasons.append(Rejection(candidate.row, reason=reason))
    if is_named:
        told = "; ".join(r.reason for r in reasons)
        hint = "leave the choice to the model, or take another algorithm"
        raise ConfigError(f"the choice {stored.algorithm} does not fit {workload.op.name}: {told}", hint=hint)
    return Choice()


def _names_one(workload: Workload, stored: Choice) -> bool:
    """Whether a stored choice names an algorithm of the operator, so that the others are passed over."""
    rows = CANDIDATES.get(workload.op.name, ())
    return any(row.algorithm is not None and row.algorithm.name == stored.algorithm for row in rows)
