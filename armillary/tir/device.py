"""What `split-host-device` produces: a lowered function as kernels of a device, launched one after another.

In: nothing; these are the data the emitters of GPU languages read. Out: `DeviceFunction` and `DeviceKernel`. Invariant:
a kernel runs once per work-item; every buffer that its body touches is one of `buffers`, or allocated inside the body;
launches run in order, each seeing what those before wrote. Made by `tir/transform/split_host_device.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.tir.expr import Expr, Var
from armillary.tir.stmt import Buffer, Stmt

TAGS = tuple(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz")
Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """As many work-groups as (value of `var` + `more`) // `per`: a number that is known when a function is called."""

    var: Var
    more: int = 0
    per: int = 1


Grid = tuple[int | Groups, int | Groups, int | Groups]


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
    workspace: dict[Buffer, int] = field(default_factory=dict)
    workspace_bytes: int = 0
    noalias: bool = True
    outputs: tuple[Buffer, ...] = ()
