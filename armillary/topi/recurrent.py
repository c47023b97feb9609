"""`topi.nn.lstm`: a layer of long short-term memory as a scan.

In: a sequence (time, batch, features), the weights of the four gates one below the other, start values. Out: the
states and the cells of each step. Invariant: one step of the scan is one step of the layer; steps run in turn, from the
last element of the sequence where it is reversed. Networks have `nn.lstm_cell` and its passes instead.
"""

from __future__ import annotations

from armillary import te
from armillary.base.aliases import AnyFunction
from armillary.errors import TypeMismatch
from armillary.tir import build as T
from armillary.topi.operators import unary

Tensor = te.Tensor
Optional = Tensor | None


def _sigmoid(x: Tensor) -> Tensor:
    return unary("sigmoid", x)


def _tanh(x: Tensor) -> Tensor:
    return unary("tanh", x)


def _start(rows: te.ExprLike, columns: te.ExprLike, state: Optional, dtype: str) -> Tensor:
    """The state before the first step: zeros unless it is given."""
    return te.compute((1, rows, columns), lambda _, b, j: T.const(0.0, dtype) if state is None else state(b, j))


def _read(data: Tensor, weight: Tensor, biases: list[Tensor], reverse: bool) -> Tensor:
    """What the gates have from the sequence: (time, batch, 4, hidden)."""
    steps, batch, width = data.shape
    hidden = weight.shape[0] // 4
    k = te.reduce_axis((0, width), "k")

    def product(t: te.Expr, b: te.Expr, row: te.Expr) -> te.Expr:
        return te.sum(data(steps - 1 - t if reverse else t, b, k) * weight(row, k), axis=k)

    projected = te.compute((steps, batch, weight.shape[0]), product, name="from_sequence")

    def with_biases(t: te.Expr, b: te.Expr, gate: te.Expr, j: te.Expr) -> te.Expr:
        total: te.Expr = projected(t, b, gate * hidden + j)
        for bias in biases:
            total = total + bias(gate * hidden + j)
        return total

    return te.compute((steps, batch, 4, hidden), with_biases, name="of_sequence")


def lstm(
    Xs: Tensor,  # noqa: N803
    Wi: Tensor,  # noqa: N803
    Wh: Tensor,  # noqa: N803
    Bi: Optional = None,  # noqa: N803
    Bh: Optional = None,  # noqa: N803
    h_init: Optional = None,
    c_init: Optional = None,
    proj: Optional = None,
    p_i: Optional = None,
    p_f: Optional = None,
    p_o: Optional = None,
    f_act: AnyFunction = _sigmoid,
    g_act: AnyFunction = _tanh,
    h_act: AnyFunction = _tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Tensor, Tensor]:
    """States (time, batch, out) and cells (time, batch, hidden) of a layer, in the order in which they are computed.

    Xs (time, batch, in), Wi (4 hidden, in), Wh (4 hidden, out), Bi and Bh (4 hidden,), h_init (batch, out), c_init
    (batch, hidden), proj (out, hidden), p_i, p_f and p_o (batch, hidden). `weight_layout` is the order of the gates.
    Raises TypeMismatch for another order than one of I, F, G and O.
    """
    if sorted(weight_layout) != sorted("IFGO"):
        raise TypeMismatch(f"topi.nn.lstm: weight_layout {weight_layout!r}, wanted the letters I, F, G and O once each")
    place, dtype = {gate: weight_layout.index(gate) for gate in "IFGO"}, str(Xs.dtype)
    steps, batch, _ = Xs.shape
    hidden, out = Wh.shape[0] // 4, Wh.shape[1]
    read = _read(Xs, Wi, [bias for bias in (Bi, Bh) if bias is not None], reverse)
    state = te.placeholder((steps + 1, batch, out), dtype, name="state")
    cell = te.placeholder((steps + 1, batch, hidden), dtype, name="cell")
    o = te.reduce_axis((0, out), "o")
    fed = te.compute(
        (steps + 1, batch, 4, hidden),
        lambda t, b, g, j: te.sum(state(t - 1, b, o) * Wh(g * hidden + j, o), axis=o),
        name="from_state",
    )

    def gate(name: str, act: AnyFunction, weight: Optional, cells: Tensor, ago: int) -> Tensor:
        def total(t: te.Expr, b: te.Expr, j: te.Expr) -> te.Expr:
            result: te.Expr = read(t - 1, b, place[name], j) + fed(t, b, place[name], j)
            return result if weight is None else result + weight(b, j) * cells(t - ago, b, j)

        result: Tensor = act(te.compute((steps + 1, batch, hidden), total, name=f"gate_{name}"))
        return result

    retained, taken = gate("F", f_act, p_f, cell, 1), gate("I", f_act, p_i, cell, 1)
    new = gate("G", g_act, None, cell, 1)
    next_cell = te.compute(
        (steps + 1, batch, hidden),
        lambda t, b, j: retained(t, b, j) * cell(t - 1, b, j) + taken(t, b, j) * new(t, b, j),
        name="next_cell",
    )
    shown, gate_value = h_act(next_cell), gate("O", f_act, p_o, next_cell, 0)
    seen = te.compute((steps + 1, batch, hidden), lambda t, b, j: gate_value(t, b, j) * shown(t, b, j), name="seen")
    next_state = seen if proj is None else _projected(seen, proj)
    starts = [_start(batch, out, h_init, dtype), _start(batch, hidden, c_init, dtype)]
    states, cells = te.scan(starts, [next_state, next_cell], [state, cell], name="lstm")
    return _behind(states, "states"), _behind(cells, "cells")


def _projected(seen: Tensor, proj: Tensor) -> Tensor:
    k = te.reduce_axis((0, proj.shape[1]), "k")
    shape = (*seen.shape[:2], proj.shape[0])
    return te.compute(shape, lambda t, b, j: te.sum(seen(t, b, k) * proj(j, k), axis=k), name="projected")


def _behind(states: Tensor, name: str) -> Tensor:
    """All steps but the start."""
    steps, *rest = states.shape
    return te.compute((steps - 1, *rest), lambda t, b, j: states(t + 1, b, j), name=name)
