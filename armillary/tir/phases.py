"""What the last pass of lowering produces, ready for a code generator: phases of a processor, kernels of a device.

In: nothing; these are the data the emitters read. Out: `PhasedFunction` and `Phase`, `DeviceFunction` and
`DeviceKernel`. Invariant: `data[k]` of the kernel ABI is `params[k]`; every buffer that a phase body touches is a
param, a key of `shared_workspace` or `thread_workspace`, or allocated inside that body (registers or stack). Bodies
hold no parallel loop. The ABI: `docs/architecture.md`. Made by `tir/transform/split_phases.py`; run by
`interpret_phases` of `tir/interpreter.py`. A kernel of a device runs once per work-item; its launches run in order,
each seeing what those before wrote. Made by `tir/transform/split_host_device.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.base.extent import Known
from armillary.tir.expr import Expr, Var
from armillary.tir.stmt import Buffer, Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Run `body` for `var` in [min + begin, min + end), where [begin, end) is a window inside [0, extent).

    `extent` and `min` use function vars only, and have the dtype of `var`. `asserts` are the numbers (from 1) of the
    AssertStmts inside. An extent of 1 with a `var` that the body does not use is a serial phase.
    """

    var: Var
    min: Expr
    extent: Expr
    body: Stmt
    is_parallel: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class PhasedFunction:
    """A kernel: phases run in order, with a barrier between.

    `params` are the flattened tensor arguments, `shapes` their shapes as the caller sees them; `vars` are the scalar
    arguments and then the symbolic dimensions. Workspaces map buffers to byte offsets (multiples of 64), which
    may be extents; of a thread's own, the bytes stand behind the values of the vars where they are no number;
    an AssertStmt that fails returns its place in `asserts`, counted from 1 (looked up by identity in `assert_codes`).
    """

    name: str
    params: tuple[Buffer, ...]
    shapes: tuple[tuple[Expr, ...], ...]
    vars: tuple[Var, ...]
    phases: tuple[Phase, ...]
    shared_workspace: dict[Buffer, Known] = field(default_factory=dict)
    thread_workspace: dict[Buffer, Known] = field(default_factory=dict)
    shared_bytes: Known = 0
    thread_bytes: Known = 0
    asserts: tuple[str, ...] = ()
    assert_codes: dict[Stmt, int] = field(default_factory=dict)
    noalias: bool = True
    imports: str = ""  # modules of LLVM IR that define C functions it calls, with IMPORTS between
    outputs: tuple[Buffer, ...] = ()  # written even when no statement says so: tensors without elements


# --- devices --------------------------------------------------------------------------------------------------------

TAGS = tuple(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz")
Sizes = tuple[int, int, int]
Grid = tuple[Known, Known, Known]  # over a function's vars, so known when it is called


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """`groups` times `items` work-items run `body`; `axes` are the variables it reads its own place from, by tag.

    Allocations of scope `shared` are one per work-group, others one per work-item; `thread_sync` is a barrier.
    """

    name: str
    buffers: tuple[Buffer, ...]
    vars: tuple[Var, ...]
    axes: dict[str, Var]
    groups: Grid
    items: Sizes
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class DeviceFunction:
    """Launches in order over `params` and a workspace, in which each buffer has a byte offset and a size."""

    name: str
    params: tuple[Buffer, ...]
    shapes: tuple[tuple[Expr, ...], ...]
    vars: tuple[Var, ...]
    kernels: tuple[DeviceKernel, ...]
    workspace: dict[Buffer, Known] = field(default_factory=dict)
    workspace_bytes: Known = 0
    noalias: bool = True
    outputs: tuple[Buffer, ...] = ()
