"""What a function says of its arguments' layouts by names, settled: the runtime passes dense tensors that begin at 0.

In: a function whose buffers have variables for strides (`strides=[s]`) or offsets (`elem_offset=o`), or dimensions that
are computed (`n // x`). Out: the same over dense tensors: a stride that only a variable names is the dense one, an
offset 0, and a computed dimension is a variable of its own, with an assertion that it is what was computed. Invariant:
shapes of parameters are numbers and variables afterwards, where their expressions name known variables alone.
"""

from __future__ import annotations

from armillary.base.node import replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars
from armillary.tir.buffer_access import strides_of
from armillary.tir.substitute import rename_buffers, substitute, substitute_expr


def settle_arguments(func: S.PrimFunc, dimensions: bool = True) -> S.PrimFunc:
    """A function over dense tensors; computed dimensions stay as they are unless `dimensions`.

    func @f[o: int32, s: int32](A: Buffer[(n,), float32, strides=(s,), elem_offset=o])  ->  func @f(A: Buffer[(n,)…])
    """
    buffers = [p for p in func.params if isinstance(p, S.Buffer)]
    known: set[E.Var] = {p for p in func.params if isinstance(p, E.Var)}
    known.update(size for b in buffers for size in b.shape if isinstance(size, E.Var))
    layouts = _Layouts(known)
    settled = {b: layouts.settled(b, dimensions) for b in buffers}
    if all(old is new for old, new in settled.items()):
        return func
    body = rename_buffers(substitute(func.body, layouts.values), settled)
    for condition, message in reversed(layouts.checks):
        body = S.AssertStmt(condition, message, body)
    params = tuple(settled[p] if isinstance(p, S.Buffer) else p for p in func.params)
    result: S.PrimFunc = replace(func, params=params, body=body)
    return result


class _Layouts:
    """Values of variables that name strides and offsets, and what must hold of dimensions."""

    def __init__(self, known: set[E.Var]) -> None:
        self.known = known
        self.values: dict[E.Var, E.Expr] = {}
        self.checks: list[tuple[E.Expr, str]] = []

    def settled(self, buffer: S.Buffer, dimensions: bool) -> S.Buffer:
        offset, strides = buffer.elem_offset, buffer.strides
        if isinstance(offset, E.Var) and offset not in self.known:
            self.values[offset] = build.const(0, offset.dtype)
            offset = None
        if strides and len(strides) == len(buffer.shape):
            dense = strides_of(replace(buffer, strides=()))
            strides = tuple(self.step(buffer, *pair) for pair in zip(strides, dense, strict=True))
            strides = () if all(a is b for a, b in zip(strides, dense, strict=True)) else strides
        shape = tuple(self.size(buffer, k, n) for k, n in enumerate(buffer.shape)) if dimensions else buffer.shape
        same = offset is buffer.elem_offset and strides == buffer.strides
        if same and all(a is b for a, b in zip(shape, buffer.shape, strict=True)):
            return buffer
        if shape != buffer.shape and not strides:
            strides = tuple(strides_of(replace(buffer, strides=())))  # elements lie where the computed sizes say
        return replace(buffer, shape=shape, strides=strides, elem_offset=offset)

    def step(self, buffer: S.Buffer, named: E.Expr, dense: E.Expr) -> E.Expr:
        """A stride: where a variable names it, that of a dense tensor."""
        if not isinstance(named, E.Var) or named in self.known:
            return named
        value = build.cast(dense, named.dtype)
        before = self.values.setdefault(named, value)
        if before is not value:
            self.checks.append((build.equal(before, value), f"{buffer.name}: the stride {named.name} is another's too"))
        return dense

    def size(self, buffer: S.Buffer, place: int, extent: E.Expr) -> E.Expr:
        """A dimension: where it is computed, a variable that has to be equal."""
        if isinstance(extent, E.IntImm | E.Var) or not self.known.issuperset(free_vars(extent)):
            return extent
        var = E.Var(f"{buffer.name}_dim_{place}", extent.dtype)
        wanted = substitute_expr(extent, self.values)
        self.checks.append((build.equal(var, wanted), f"{buffer.name}: dimension {place} is not {extent!r}"))
        return var
