"""pack-low-bit: nn.low_bit_dense of constant weights as cpu.low_bit_dense over packed words.

In: a typed module. Out: one in which the rows of data are in digits (cpu.digits), which products of the same data
share, and weights in words for the kernel. Invariant: no weight becomes a float; what is not of this form stays, and
generic loops compute it. Many rows of 16 or 8 bits go to matrix tiles where there are some (operator_tiles.py), over
the same words. `low_bit.activation_bits` says how exact rows in digits are: 24 (as good as float32), 16 or 8.

    nn.low_bit_dense(%x, weight, scales, zeros)
    ->
    %0 = cpu.digits(%x);
    cpu.low_bit_dense(%0.0, %0.1, %0.2, words, scales, zeros)
"""

from __future__ import annotations

import math

from armillary.backends.cpu.gemm.low_bit.operator import terms_of_word
from armillary.backends.cpu.gemm.low_bit.operator_tiles import DEEP, PRODUCTS, has_tiles
from armillary.backends.cpu.gemm.low_bit.pack import packed_parameters, packed_words
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem
from armillary.relay.op import get_op
from armillary.relay.transform._rules import call, op_name, rewrite_module, tensor
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass, register_config_option

PRODUCT = "nn.low_bit_dense"
ACTIVATION_BITS = register_config_option(
    "low_bit.activation_bits",
    int,
    24,
    "bits of activations in products with weights of 2 to 8 bits on CPUs: 24 (as float32), 16 or 8",
)
_LONGEST_BLOCK, _VECTOR = 64, 16  # terms of a block of digits
_TILED_ROWS = 16  # rows for which expanding weights for matrix tiles pays (operator_tiles.py)
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
    if op_name(expr) != PRODUCT or not isinstance(expr, Call):
        return None
    data, result, attrs = tensor(expr.args[0]), tensor(expr), expr.attrs
    weight, scales, zeros = expr.args[1:]
    if data is None or result is None or str(data.dtype) != "float32" or not result.size:
        return None
    if not isinstance(weight, Constant) or not isinstance(scales, Constant) or not isinstance(zeros, Constant):
        return None
    block = _block(attrs.group, attrs.bits)
    if block is None:
        return None
    lanes, units, count = 16 if cpu.lanes >= 16 else 8, result.static[-1], math.prod(data.static[:-1])
    rows = reshape_to(expr.args[0], (count, data.static[-1]))
    zero = zeros.data.reshape(1, 1, 1) if zeros.nbytes == 1 else packed_parameters(zeros.held, lanes)
    words, factors = packed_words(weight.held, attrs.bits, lanes), packed_parameters(scales.held, lanes)
    if digits in PRODUCTS and count >= _TILED_ROWS and is_tiled and data.static[-1] % DEEP == 0:
        named = {"bits": attrs.bits, "group": attrs.group, "rows": count, "units": units}
        parts = call("cpu.bfloat16_parts", rows, parts=digits)
        weights = (Constant(packed) for packed in (words, factors, zero))
        return reshape_to(call("cpu.low_bit_tiles", parts, *weights, **named), result.static)
    split = call("cpu.digits", rows, digits=digits, block=block)
    arguments = (
        *(TupleGetItem(split, k) for k in range(3)),
        Constant(words),
        Constant(factors),
    )
    op = get_op("cpu.low_bit_dense")
    most = (cpu.vector_registers - _SPARE) * cpu.lanes // (lanes * (digits + 1))
    named = {"bits": attrs.bits, "group": attrs.group, "block": block, "units": units}
    named["rows"] = max(1, min(_MOST_ROWS, most))
    made = Call(op, (*arguments, Constant(zero)), op.make_attrs(named=named), expr.span)
    return reshape_to(made, result.static)


def _block(group: int, bits: int) -> int | None:
    """Terms of a block: a divisor of the group, of whole vectors and words."""
    step = math.lcm(_VECTOR, terms_of_word(bits))
    return next((n for n in range(_LONGEST_BLOCK, 0, -step) if group % n == 0), None)
