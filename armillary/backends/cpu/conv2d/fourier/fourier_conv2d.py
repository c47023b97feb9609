"""fourier-conv2d: blocked convolutions with large kernels by Fourier transforms, where the cost model says it pays.

In: a module after alter-op-layout. Out: nn.contrib_conv2d_NCHWc calls with a constant float32 kernel of 4x4 to 15x15,
stride 1 and one group become cpu.conv2d_fourier_NCHWc, their weights in the order that its transform reads.
Invariant: no larger rounding error than the direct convolution's, no larger package; weights of whole numbers, whose
sums are exact, are left alone. `relay.FourierConv2D.use`: 0 switches the pass off, 1 asks for it wherever it can be.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    cpu.conv2d_fourier_NCHWc(%x, layout_transform(weight))

The model: backends/cpu/conv2d/fourier/cost.py. Measurements: docs/decisions/fourier.md.
"""

from __future__ import annotations

from armillary.backends.cpu.conv2d.fourier.cost import KERNELS, FourierLayer, direct_estimate, estimate
from armillary.backends.cpu.cost.model import weight_bandwidth
from armillary.backends.winograd import is_constant, is_whole
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, Source, stored_choice
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass, register_config_option

USE = register_config_option(
    "relay.FourierConv2D.use", int, -1, "large kernels by Fourier transforms: 0: none, 1: all that can be, -1: by cost"
)
FOURIER, TRANSFORMED = "conv2d.fourier", "cpu.conv2d_fourier_NCHWc"
GAIN = 0.8  # of the estimated time of the direct convolution


@define_pass("fourier-conv2d", opt_level=3)
def fourier_conv2d(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Replace direct convolutions with large kernels where Fourier transforms are estimated to be faster."""
    use = PassContext.current().get(USE)
    cpu = cpu_model(Target(target if target is not None else Target.current() or "llvm"))

    def change(function: Function) -> Expr:
        network = sum(e.nbytes for e in post_order(function, not_primitive) if isinstance(e, Constant))

        def rule(expr: Expr) -> Expr | None:
            layer, stored = eligible(expr), stored_choice(expr) if isinstance(expr, Call) else Choice()
            if isinstance(expr, Call) and stored.algorithm == FOURIER:
                return _replaced(expr, _checked(stored, layer))
            # a script means what it says; a record of a space with transforms has compared them
            if stored.source is Source.OVERRIDE or any(r.name == FOURIER for r in stored.rejected):
                return None
            if layer is None or not isinstance(expr, Call) or not (use == 1 or is_faster(layer, cpu, network)):
                return None
            return _replaced(expr, Choice())

        return rewrite(function, rule, enter=not_primitive)

    return on_functions(module, change) if use else module


def is_faster(layer: FourierLayer, cpu: CpuModel, network: int) -> bool:
    """Whether it pays; `network`: bytes of all parameters."""
    rate = weight_bandwidth(cpu, network)
    return estimate(layer, cpu, rate).cycles < GAIN * direct_estimate(layer, cpu, rate).cycles


def _checked(stored: Choice, layer: FourierLayer | None) -> Choice:
    if layer is None:
        message = (
            f"the choice {stored.algorithm} does not fit a convolution: transforms compute none of its kernel or stride"
        )
        raise ConfigError(message, hint="tune again, or take another choice")
    return stored


def eligible(expr: Expr) -> FourierLayer | None:
    """The sizes of a convolution that Fourier transforms can compute; None for others."""
    if not is_call(expr, "nn.contrib_conv2d_NCHWc"):
        return None
    weight, attrs, result = tensor(expr.args[1]), expr.attrs, tensor(expr)
    if weight is None or result is None or result.dtype != "float32" or weight.dtype != "float32":
        return None
    plain = attrs.groups == 1 and set(attrs.strides) == {1} and set(attrs.dilation) == {1}
    kernel = weight.static[2:4]
    if not plain or not all(k in KERNELS for k in kernel) or not is_constant(expr.args[1]) or is_whole(expr.args[1]):
        return None
    batch, chunks, height, width, block = result.static
    if block < 4 or weight.static[4] < 4:
        return None  # planes and blocks of an odd size have schedules of their own
    return FourierLayer(weight.static[1] * weight.static[4], chunks, block, batch, height, width, kernel)


def _replaced(expr: Call, choice: Choice) -> Call:
    data, weight = expr.args
    inner, outer = tensor(weight).static[4:]  # type: ignore[union-attr]
    old, new = f"OIHW{inner}i{outer}o", f"OI{inner}iHW{outer}o"
    turned = get_op("layout_transform")(weight, src_layout=old, dst_layout=new)
    op = get_op(TRANSFORMED)
    attrs = op.make_attrs(named={"padding": expr.attrs.padding, "channels": expr.attrs.channels, "choice": str(choice)})
    return Call(op, (data, turned), attrs, expr.span)
