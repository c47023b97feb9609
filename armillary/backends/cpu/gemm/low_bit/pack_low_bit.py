"""pack-low-bit: nn.low_bit_dense and nn.two_level_dense of constant weights as cpu.low_bit_dense over packed words.

In: a typed module. Out: one in which the rows of data are in digits (cpu.digits), which products of the same data
share, and weights in words for the kernel; nn.narrow_dense becomes cpu.narrow_dense (operator_narrow.py). Invariant: no
weight becomes a float32; what is not of this form stays, and generic loops compute it. Many rows of 16 or 8 bits go to
matrix tiles where there are some (operator_tiles.py), over the same words; so do rows for 16-bit floats, of 24 bits
too (operator_narrow_tiles.py). `low_bit.activation_bits`: rows are as good as float32 (24), or of 16 or 8 bits.

    nn.low_bit_dense(%x, weight, scales, zeros)
    ->
    %0 = cpu.digits(%x);
    cpu.low_bit_dense(%0.0, %0.1, %0.2, words, scales, zeros, minima, tops)
"""

from __future__ import annotations

import math

import numpy as np

from armillary.backends.cpu.gemm.low_bit.pack import packed_parameters, packed_words
from armillary.backends.cpu.gemm.low_bit.tile_panels import DEEP, PRODUCTS, has_tiles
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.decoder.low_bit_dense import LEVELS, NAME, terms_of_step
from armillary.ops.decoder.narrow_dense import NARROW
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem, const
from armillary.relay.op import get_op
from armillary.relay.transform._rules import call, op_name, rewrite_module, tensor
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass, register_config_option

ACTIVATION_BITS = register_config_option(
    "low_bit.activation_bits",
    int,
    24,
    "bits of activations in products with weights of 2 to 8 bits, and of 16 by matrix tiles, on CPUs: 24 (as float32), "
    "16 or 8",
)
_LONGEST_BLOCK, _VECTOR = 64, 16  # terms of a block of digits
_TILED_ROWS = 16  # rows for which expanding weights for matrix tiles pays (operator_tiles.py)
_NO_LEVELS = [const(np.zeros((1, 1), np.float32)), const(np.ones((1, 1), np.float32))]  # minima and tops
_PAIRED_ROWS = 4  # from which on two blocks of units share what is read of the rows
_SPARE, _MOST_ROWS = 4, 8  # registers that are no sums; rows that share a read of the weights


@define_pass("pack-low-bit", opt_level=1)
def pack_low_bit(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Pack the weights, and put rows into digits."""
    where = Target(target if target is not None else Target.current() or "llvm")
    cpu = cpu_model(where)
    bits = int(PassContext.current().get(ACTIVATION_BITS))
    if bits not in (8, 16, 24):
        raise ConfigError(f"low_bit.activation_bits is {bits}", hint="8, 16 or 24")
    return rewrite_module(module, lambda expr: _packed(expr, cpu, bits // 8, has_tiles(where)))


def _packed(expr: Expr, cpu: CpuModel, digits: int, is_tiled: bool) -> Expr | None:
    if op_name(expr) == NARROW and isinstance(expr, Call):
        return _narrow(expr, cpu, digits, is_tiled)
    if op_name(expr) not in (NAME, LEVELS) or not isinstance(expr, Call):
        return None
    data, result, attrs = tensor(expr.args[0]), tensor(expr), expr.attrs
    constants = [a for a in expr.args[1:] if isinstance(a, Constant)]
    if data is None or result is None or str(data.dtype) != "float32" or not result.size:
        return None
    block = _block(attrs.group, attrs.bits)
    if block is None or len(constants) != len(expr.args) - 1:
        return None
    lanes, units, count = 16 if cpu.lanes >= 16 else 8, result.static[-1], math.prod(data.static[:-1])
    rows = reshape_to(expr.args[0], (count, data.static[-1]))
    constants += _NO_LEVELS[: 5 - len(constants)]
    parts = [_in_lanes(constant, lanes) for constant in constants[1:]]
    weights = [Constant(packed_words(constants[0].held, attrs.bits, lanes)), *parts]
    if (digits, digits) in PRODUCTS and count >= _TILED_ROWS and is_tiled and data.static[-1] % DEEP == 0:
        named = {"bits": attrs.bits, "group": attrs.group, "rows": count, "units": units}
        return reshape_to(
            call("cpu.low_bit_tiles", call("cpu.bfloat16_parts", rows, parts=digits), *weights, **named), result.static
        )
    split = call("cpu.digits", rows, digits=digits, block=block)
    op = get_op("cpu.low_bit_dense")
    most = (cpu.vector_registers - _SPARE) * cpu.lanes // (lanes * (digits + 1))
    named = {"bits": attrs.bits, "group": attrs.group, "block": block, "units": units}
    named["rows"] = max(1, min(_MOST_ROWS, most))
    product = Call(op, (*(TupleGetItem(split, k) for k in range(3)), *weights), op.make_attrs(named=named), expr.span)
    return reshape_to(product, result.static)


def _narrow(expr: Call, cpu: CpuModel, parts: int, is_tiled: bool) -> Expr | None:
    """nn.narrow_dense over weights in blocks of units."""
    data, result, weight = tensor(expr.args[0]), tensor(expr), expr.args[1]
    if data is None or result is None or not result.size or not isinstance(weight, Constant):
        return None
    lanes, count = 16 if cpu.lanes >= 16 else 8, math.prod(data.static[:-1])
    blocks = 1 if count < _PAIRED_ROWS else 2
    rows = max(1, (cpu.vector_registers - _SPARE * blocks) * cpu.lanes // (lanes * blocks))
    source = reshape_to(expr.args[0], (count, data.static[-1]))
    if count >= _TILED_ROWS and is_tiled and data.static[-1] % DEEP == 0:
        split, sizes = call("cpu.bfloat16_parts", source, parts=parts), {"rows": count, "units": result.static[-1]}
        return reshape_to(call("cpu.narrow_tiles", split, _in_lanes(weight, lanes), **sizes), result.static)
    named = {"units": result.static[-1], "rows": rows, "blocks": blocks}
    return reshape_to(call("cpu.narrow_dense", source, _in_lanes(weight, lanes), **named), result.static)


def _in_lanes(constant: Constant, lanes: int) -> Constant:
    """Parameters by units, or one for all, as the kernel reads them."""
    if constant.held.shape == (1, 1):
        return Constant(constant.data.reshape(1, 1, 1))
    return Constant(packed_parameters(constant.held, lanes))


def _block(group: int, bits: int) -> int | None:
    """Terms of a block: a divisor of the group, of whole vectors and words."""
    step = math.lcm(_VECTOR, terms_of_step(bits))
    return next((n for n in range(_LONGEST_BLOCK, 0, -step) if group % n == 0), None)
