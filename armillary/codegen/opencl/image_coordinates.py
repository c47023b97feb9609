"""Rows and columns of images in OpenCL C: what all iterations of a work-item share is computed once.

In: an integer expression. Out: text. Invariant: the value is the expression's. Drivers for Adreno GPUs do not move
arithmetic out of loops, and multiply 32-bit integers by four instructions: what only the work-item decides is a
constant at the top of the kernel, products of what is known to be short are of 24 bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from armillary.base.node import post_order
from armillary.codegen.opencl.linear import Terms, linear
from armillary.tir import expr as E
from armillary.tir.analysis import has_loads

_SHORT = 1 << 23
Range = tuple[int | None, int | None]


class Emitter(Protocol):
    """What is asked of the emitter of a kernel."""

    grid: set[E.Var]

    def index(self, item: E.Expr, lane: str | None = None) -> str: ...
    def range(self, item: E.Expr) -> Range: ...
    def constant(self, text: str) -> str: ...
    def at_top(self) -> AbstractContextManager[None]: ...


def coordinate_text(m: Emitter, item: E.Expr) -> str:
    """A row or column."""
    if item.dtype.lanes != 1 or item.dtype != "int32" or has_loads(item):
        return m.index(item)
    terms, number = linear(item)
    fixed = {key: term for key, term in terms.items() if is_fixed(m, term[0])}
    moving = [_product(m, *term) for key, term in terms.items() if key not in fixed]
    parts = [*moving, *_fixed(m, fixed)]
    if not parts:
        return m.index(item)
    text = " + ".join(parts)
    if number:
        text += f" {'+' if number > 0 else '-'} {abs(number)}"
    return f"({text})" if len(parts) > 1 or number else text


def is_fixed(m: Emitter, item: E.Expr) -> bool:
    """Whether the work-item alone decides a number."""
    variables = [n for n in post_order(item) if isinstance(n, E.Var)]
    return bool(variables) and all(var in m.grid for var in variables)


def _fixed(m: Emitter, terms: Terms) -> list[str]:
    """One name for what the work-item alone decides."""
    if not terms:
        return []
    with m.at_top():
        text = " + ".join(_product(m, *term) for term in terms.values())
    return [text if len(terms) == 1 and text.isidentifier() else m.constant(text)]


def _product(m: Emitter, item: E.Expr, count: int) -> str:
    text = m.index(item)
    if count == 1:
        return text
    low, high = m.range(item)
    is_short = low is not None and high is not None and low >= -_SHORT and high < _SHORT and abs(count) < _SHORT
    if is_short and abs(count) & (abs(count) - 1):
        return f"mul24({text}, {count})"
    return f"{text} * {count}" if count > 0 else f"{text} * ({count})"
