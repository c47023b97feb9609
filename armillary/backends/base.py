"""What a family of targets brings along: one `Backend` record, which shared code asks instead of comparing names.

In: a target. Out: `backend_of(target)`: graph passes of its own, algorithms, and the way from scheduled loops to code.
Invariant: a record is found by the family of the target's kind, in `backends/<family>/backend.py` as `BACKEND`, or
because something outside this package registered it; what it names is imported when it is first used.
Phases of a build and where these passes run: relay/transform/pipeline.py. Kernels: driver/kernel_code.py.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from armillary.base.record import record
from armillary.errors import InternalError, TargetError
from armillary.relay.expr import Function
from armillary.target import Target
from armillary.transform import Pass

if TYPE_CHECKING:
    from armillary.artifact import FunctionRow
    from armillary.backends.candidate import Candidate
    from armillary.codegen.build import CompiledModule
    from armillary.codegen.workers.cache import Cache
    from armillary.tir.stmt import PrimFunc

SourceRows = Mapping[str, "tuple[FunctionRow, str]"]  # of a device: how a function is launched, and its kernels' text
PassList = Callable[[Target], Sequence[Pass]]
DeviceCode = Any  # Any: each family's own: phases on a CPU, functions of host and device elsewhere


def no_passes(target: Target) -> Sequence[Pass]:
    """What a family without passes of its own gives."""
    return ()


@record
class GraphPasses:
    """The graph passes of a family, by the phase of a build in which they run (relay/transform/pipeline.py)."""

    types: PassList = no_passes  # everything is typed: which types it computes with
    axes: PassList = no_passes  # operators are canonical: orders of axes that it computes in
    layouts: PassList = no_passes  # few large operators: layouts and algorithms
    weights: PassList = no_passes  # constants are folded: how weights are stored
    operators: PassList = no_passes  # before calls are grouped: operators of its own
    kernels: PassList = no_passes  # calls are grouped into kernels: kernels of several contractions
    choices: PassList = no_passes  # every call is one of a kernel: what was chosen for each
    plain: PassList = no_passes  # as written, the first of all: plain layouts that it has algorithms for


class Build(Protocol):
    """Machine code of functions that `lower` gave; `tir` is kept for sources, `jobs` is as `compile_many` takes it."""

    def __call__(
        self,
        functions: Sequence[DeviceCode],
        target: Target,
        *,
        cache: Cache | None,
        jobs: int | None = None,
        tir: Mapping[str, PrimFunc] | None = None,
    ) -> CompiledModule: ...


def no_candidates(op: str) -> Sequence[Candidate]:
    """What a family without manifests of algorithms declares for an operator."""
    return ()


def nothing_needed(target: Target) -> Sequence[str]:
    """What code asks of a processor, for families whose code runs on any."""
    return ()


def joined(functions: SourceRows) -> tuple[dict[str, FunctionRow], str]:
    """The texts of a device's functions one after another, with their rows."""
    return {name: row for name, (row, _) in functions.items()}, "\n".join(text for _, text in functions.values())


def as_it_is(function: Function, target: Target) -> Function:
    """The function that a kernel computes, for families that compute what the graph says."""
    return function


@record
class Backend:
    """What the driver and the pipeline ask of a family of targets."""

    family: str  # as `TargetKind.family` names it
    algorithms: tuple[str, ...]  # packages whose modules register schedules (`@implement`, `@default_schedule`)
    lower: Callable[[PrimFunc, str], DeviceCode]  # loops after all loop passes, a name: what `emit` takes
    emit: Callable[[Sequence[DeviceCode], Target], CompiledModule]  # sources without objects
    build: Build
    passes: GraphPasses = GraphPasses()
    candidates: Callable[[str], Sequence[Candidate]] = no_candidates  # of an operator, those that manifests declare
    kernel_function: Callable[[Function, Target], Function] = as_it_is  # a kernel, in the form that is lowered
    device: str = ""  # the kind of device that kernels run on, which are sources then; "": machine code of the host
    alignment: int = 64  # bytes, of tensors that share an arena
    keeps_blocks: tuple[str, ...] = ()  # data layouts in blocks of operators of plain layouts that kernels compute
    sums_float16: bool = False  # products with out_dtype float16 are added in float16, not in float32
    program: Callable[[SourceRows], tuple[dict[str, FunctionRow], str]] = joined  # of a device: all sources as one
    machine: Callable[[Target], str] = str  # what a target means on this machine, for keys of caches
    needs: Callable[[Target], Sequence[str]] = nothing_needed  # features of the processor that any code asks for


_BACKENDS: dict[str, Backend] = {}


def register_backend(backend: Backend) -> Backend:
    """Make a back end known that lives outside this package."""
    if backend.family in _BACKENDS:
        raise InternalError(f"two back ends for the family {backend.family!r}")
    _BACKENDS[backend.family] = backend
    return backend


def is_built_in(target: Target) -> bool:
    """Whether a target's back end is one of this package, which other processes have too."""
    return importlib.util.find_spec(_module(target.kind.family, "")) is not None


def has_backend(target: Target) -> bool:
    """Whether code can be made for a target."""
    return target.kind.family in _BACKENDS or is_built_in(target)


def backend_of(target: Target) -> Backend:
    """The back end of a target's family; a TargetError where there is none."""
    family = target.kind.family
    if family not in _BACKENDS:
        if not has_backend(target):
            hint = "kinds: llvm, c, opencl"
            raise TargetError(f"target {target}: code for {target.kind.name} is not there yet", hint=hint)
        backend: Backend = importlib.import_module(_module(family, ".backend")).BACKEND
        _BACKENDS[family] = backend
    return _BACKENDS[family]


def _module(family: str, name: str) -> str:
    return f"{__package__}.{family}{name}"
