"""The order of the graph passes in a build.

In: a module, a target, values of parameters. Out: a typed module whose `main` calls kernels. Invariant: order is
decided here and, for the phases that the target's back end fills, in its record (backends/base.py); each pass runs as
the current PassContext allows (opt level, required, disabled, instruments). The comments say what is true from that
line on. Next: driver/ lowers the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.backends.base import GraphPasses, backend_of
from armillary.errors import ModelError
from armillary.ir import IRModule
from armillary.relay.binding import bind_params_by_name
from armillary.relay.expr import Function
from armillary.relay.transform.check_sizes import check_sizes
from armillary.relay.transform.convolution.conv2d_before_resize import conv2d_before_resize
from armillary.relay.transform.convolution.convolution_as_2d import convolution_as_2d
from armillary.relay.transform.convolution.dense_as_conv2d import dense_as_conv2d
from armillary.relay.transform.convolution.flatten_atrous_conv import flatten_atrous_conv
from armillary.relay.transform.convolution.fold_margins import fold_margins
from armillary.relay.transform.convolution.transpose_as_conv2d import transpose_as_conv2d
from armillary.relay.transform.convolution.trim_taps import trim_taps
from armillary.relay.transform.convolution.widen_conv1d import widen_conv1d
from armillary.relay.transform.fusion.fuse_ops import DEEPEST, fuse_ops, kernel_per_call
from armillary.relay.transform.layout.hoist_elementwise import hoist_elementwise
from armillary.relay.transform.layout.sink_transpose import sink_transpose
from armillary.relay.transform.normal_form.beta_reduce import beta_reduce
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.transform.normal_form.inline import inline
from armillary.relay.transform.normal_form.label_ops import label_ops
from armillary.relay.transform.normal_form.remove_unused_functions import remove_unused_functions
from armillary.relay.transform.normal_form.to_basic_block_normal_form import to_basic_block_normal_form
from armillary.relay.transform.normal_form.to_graph_normal_form import to_graph_normal_form
from armillary.relay.transform.partition.plan_devices import plan_devices
from armillary.relay.transform.quantize.fake_quantization_to_integer import fake_quantization_to_integer
from armillary.relay.transform.quantize.qnn_canonicalize import qnn_canonicalize
from armillary.relay.transform.quantize.qnn_legalize import qnn_legalize
from armillary.relay.transform.recognize.recognize_attention import recognize_attention
from armillary.relay.transform.recognize.recognize_gelu import recognize_gelu
from armillary.relay.transform.recognize.recognize_low_bit_dense import recognize_low_bit_dense
from armillary.relay.transform.recognize.recognize_lrn import recognize_lrn
from armillary.relay.transform.recognize.recognize_normalization import recognize_normalization
from armillary.relay.transform.simplify.canonicalize_cast import canonicalize_cast, is_cast
from armillary.relay.transform.simplify.canonicalize_ops import canonicalize_ops
from armillary.relay.transform.simplify.combine_parallel_batch_matmul import combine_parallel_batch_matmul
from armillary.relay.transform.simplify.combine_parallel_conv2d import combine_parallel_conv2d
from armillary.relay.transform.simplify.combine_parallel_dense import combine_parallel_dense
from armillary.relay.transform.simplify.dynamic_to_static import dynamic_to_static
from armillary.relay.transform.simplify.eliminate_common_subexpr import eliminate_common_subexpr
from armillary.relay.transform.simplify.fast_math import fast_math
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.transform.simplify.fold_scale_axis import fold_scale_axis
from armillary.relay.transform.simplify.legalize import legalize
from armillary.relay.transform.simplify.simplify_expr import simplify_expr
from armillary.relay.transform.simplify.simplify_expr_post_alter_op import simplify_expr_post_alter_op
from armillary.relay.transform.simplify.simplify_inference import simplify_inference
from armillary.relay.transform.simplify.take_as_repeat import take_as_repeat
from armillary.relay.transform.simplify.widen_per_reader import widen_per_reader
from armillary.target import Target
from armillary.transform import Pass, Sequential


def build_passes(target: object) -> list[Pass]:  # whatever Target accepts
    """The passes of a build, in order."""
    where = Target(target)
    own = backend_of(where).passes
    return [*_types(where, own), *_arithmetic(where, own), *_kernels(where, own)]


def _types(target: Target, own: GraphPasses) -> list[Pass]:
    """From what an importer gives to typed expressions, in the types that are computed with."""
    return [
        # Only what main reaches, in main; no let but for branches; every expression in one basic block, and typed.
        remove_unused_functions.bind(),
        infer_type.bind(),
        inline.bind(everything=True),
        # No result and no padding beyond what the budgets allow.
        check_sizes.bind(),
        beta_reduce.bind(),
        to_graph_normal_form.bind(),
        to_basic_block_normal_form.bind(),
        # Everything on the target's device.
        plan_devices.bind(target=target),
        # Weights that are stored in few bits stay so.
        recognize_low_bit_dense.bind(),
        # What is float between dequantize and quantize for want of integer operators is in integers.
        fake_quantization_to_integer.bind(use_qat=True),
        # Convolutions are in layouts that the target has algorithms for.
        *own.plain(target),
        # Plain integer arithmetic instead of the qnn dialect; operators as users' rules want them.
        qnn_legalize.bind(target=target),
        qnn_canonicalize.bind(target=target),
        legalize.bind(target=target, decomposes=False),
        # Types are those that the target computes with.
        *own.types(target),
    ]


def _arithmetic(target: Target, own: GraphPasses) -> list[Pass]:
    """From there to few and large operators, in plain layouts."""
    return [
        # No operator that exists for training only; no duplicate, no identity; branches on constants taken.
        simplify_inference.bind(sums_float16=backend_of(target).sums_float16),
        dynamic_to_static.bind(),
        eliminate_common_subexpr.bind(),
        simplify_expr.bind(),
        combine_parallel_conv2d.bind(3),
        combine_parallel_dense.bind(3, False),
        combine_parallel_batch_matmul.bind(3),
        fold_constant.bind(),
        simplify_expr.bind(),
        # What exporters spell out is one operator.
        recognize_gelu.bind(),
        recognize_normalization.bind(),
        recognize_lrn.bind(),
        # Channels that were last are second, from the first convolution to the last.
        fold_constant.bind(),
        sink_transpose.bind(),
        # Convolutions compute what is read of them, from data without margins, by taps that touch data.
        fold_margins.bind(),
        trim_taps.bind(),
        # Scales are in weights, each reader of a cast has its own, and bias_add is add: Relay's order. Below, scales
        # follow once more, past those additions and into what becomes a convolution over two axes.
        fold_constant.bind(),
        fold_scale_axis.bind(constant_weights=True),
        canonicalize_cast.bind(),
        canonicalize_ops.bind(),
        # Convolutions and poolings are over two axes; what acts on elements of a contraction's result is next to it.
        *own.axes(target),
        infer_type.bind(),
        widen_conv1d.bind(),
        convolution_as_2d.bind(),
        fold_constant.bind(),  # a bias that was given axes is a constant that can be moved
        transpose_as_conv2d.bind(),
        hoist_elementwise.bind(),
        dense_as_conv2d.bind(),
        hoist_elementwise.bind(),
        fold_constant.bind(),
        fold_scale_axis.bind(constant_weights=True),
        simplify_expr.bind(),
        # Attention is one operator; what moved its heads about cancels.
        recognize_attention.bind(),
        simplify_expr.bind(),
        widen_per_reader.bind(),
        flatten_atrous_conv.bind(),
        trim_taps.bind(),
        conv2d_before_resize.bind(),
    ]


def _kernels(target: Target, own: GraphPasses) -> list[Pass]:
    """From there to layouts, algorithms and kernels."""
    return [
        # Layouts are those of the target, for good; each contraction has its algorithm.
        *own.layouts(target),
        fold_constant.bind(),
        simplify_expr_post_alter_op.bind(),
        fast_math.bind(),
        fold_constant.bind(),
        # Weights are as they are stored.
        *own.weights(target),
        # No duplicate, except the casts that fuse into their readers.
        eliminate_common_subexpr.bind(fskip=is_cast),
        # Whatever is switched off: no let that a folded branch left, each operator one that kernels can compute.
        to_graph_normal_form.bind(),
        legalize.bind(legalize_map_attr_name="", target=target, keeps_blocks=backend_of(target).keeps_blocks),
        # Rows are enlarged by vectors.
        infer_type.bind(),
        take_as_repeat.bind(),
        # Operators are those that the target's kernels compute.
        *own.operators(target),
        # Every call is the call of a kernel.
        infer_type.bind(),
        fuse_ops.bind(deepest=DEEPEST),
        *own.kernels(target),
        kernel_per_call.bind(),
        inline.bind(),
        infer_type.bind(),
        # Kernels carry what was chosen for them.
        *own.choices(target),
        label_ops.bind(),
    ]


def optimize(module: IRModule, target: object, params: Mapping[str, object] | None = None) -> IRModule:
    """Bind `params` in main and run the passes of a build; target: whatever Target accepts."""
    if "main" not in module:
        raise ModelError("the module has no function 'main'", hint="IRModule.from_expr(function) makes one")
    if params:
        main = module["main"]
        if not isinstance(main, Function):
            raise ModelError(f"main is not a relay function but a {type(main).__name__}")
        module = module.copy()
        module["main"] = bind_params_by_name(main, params)
    where = Target(target)
    with where:  # rules of scripts may be for some targets alone
        return Sequential(build_passes(where), "optimize")(module)
