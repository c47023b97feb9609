"""pad-units: dense layers of bytes and of bfloat16 rounded up to what their products take.

In: a typed module. Out: nn.dense with constant weights of bytes has inputs to a multiple of four, so that its weights
come in words, of bfloat16 to a multiple of two, or of a row of a matrix tile; outputs that no large enough block
divides (196, 30,522) are up to a vector more, with zero weights, and a slice takes them off. Few outputs fill half a
vector; where kernels read weights as they are (narrow.py), they stay. Invariant: values and types stay. Runs before
alter-op-layout, which then packs the weights (those of float32 it fills up itself).

    nn.dense(%x, weight[30522])
    ->
    strided_slice(nn.dense(%x, nn.pad(weight)), begin=[0], end=[30522], axes=[1])
"""

from __future__ import annotations

import dataclasses

from armillary.backends.cpu.graph._layout_rules import MIN_ROWS, operand_terms, reads_rows
from armillary.backends.cpu.graph.alter_op_layout import block_lanes
from armillary.base.data_layout import choose_block
from armillary.ir import IRModule
from armillary.ops._dot_operands import BFLOATS
from armillary.relay.expr import Call, Expr
from armillary.relay.transform._rules import call, is_from_constants, op_name, rewrite_module, tensor
from armillary.target import Target
from armillary.target.cpu import TILE_BYTES, CpuModel, cpu_model
from armillary.transform import define_pass


@define_pass("pad-units", opt_level=3)
def pad_units(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Round dense layers in words up to whole words and vectors."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    lanes, cpu = block_lanes(chosen), cpu_model(chosen)
    return rewrite_module(module, lambda expr: _padded(expr, lanes, cpu))


def _padded(expr: Expr, lanes: int, cpu: CpuModel) -> Expr | None:
    if op_name(expr) != "nn.dense" or not isinstance(expr, Call) or not is_from_constants(expr.args[1]):
        return None
    weight, result = tensor(expr.args[1]), tensor(expr)
    word = operand_terms(expr)
    if weight is None or result is None or not word:
        return None
    whole = TILE_BYTES // weight.dtype.bytes if word == BFLOATS and cpu.has_bfloat16_tiles else word
    if weight.static[1] % whole:
        longer = _whole_operands(expr, weight.static[1], whole)
        return _padded(longer, lanes, cpu) or longer
    if reads_rows(expr, cpu):
        return None
    units, rows = weight.static[0], result.size // max(1, weight.static[0])
    good = (lanes,) if units > lanes else (lanes, max(4, lanes // 2))  # tiles are of whole vectors
    if choose_block(units, lanes) in good or (units < lanes and rows < MIN_ROWS):
        return None
    whole = lanes if units > max(4, lanes // 2) else max(4, lanes // 2)
    width = -(-units // whole) * whole
    wider = call("nn.pad", expr.args[1], pad_width=((0, width - units), (0, 0)))
    attrs = dataclasses.replace(expr.attrs, units=None if expr.attrs.units is None else width)
    padded = Call(expr.op, (expr.args[0], wider), attrs, expr.span)
    return call("strided_slice", padded, begin=(0,), end=(units,), strides=(1,), axes=(result.ndim - 1,))


def _whole_operands(expr: Call, terms: int, whole: int) -> Expr:
    """A product with zeros behind its terms, to a multiple of `whole`."""
    data, rest = expr.args[0], -terms % whole
    rank = data.checked_type.ndim  # type: ignore[attr-defined]  # a tensor: the call is typed
    longer = call("nn.pad", data, pad_width=((0, 0),) * (rank - 1) + ((0, rest),))
    return Call(expr.op, (longer, call("nn.pad", expr.args[1], pad_width=((0, 0), (0, rest)))), expr.attrs, expr.span)
