"""relay.analysis: what it says about variables, scopes, constructs and work."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.errors import ModelError, TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.relay import analysis
from armillary.relay.analysis import Feature
from armillary.relay.expr import Function, If, Let, Tuple, Var, const, var
from armillary.relay.prelude import Prelude
from armillary.relay.testing import resnet
from armillary.transform import PassContext


def x4(name: str = "x") -> Var:
    return var(name, shape=(4,))


def test_no_expression_has_type_variables() -> None:
    f = Function((x := x4(),), relay.nn.relu(x))
    assert analysis.all_type_vars(f) == analysis.free_type_vars(f) == analysis.bound_type_vars(f) == []


def test_all_dtypes_are_those_of_every_value() -> None:
    assert analysis.all_dtypes(relay.cast(x4(), "int8") + const(1, "int8")) == {"float32", "int8"}


def test_constants_and_tuples_of_them_are_constant() -> None:
    assert analysis.check_constant(Tuple((const(1.0), Tuple((const(2.0),)))))
    assert not analysis.check_constant(Tuple((const(1.0), x4())))
    assert not analysis.check_constant(const(1.0) + const(2.0))


def test_a_value_used_in_two_branches_breaks_basic_block_normal_form() -> None:
    c, x = var("c", shape=(), dtype="bool"), x4()
    shared = relay.negative(x)
    f = Function((c, x), If(c, relay.nn.relu(shared), shared))
    assert not analysis.check_basic_block_normal_form(f)
    normal = relay.transform.ToBasicBlockNormalForm()(IRModule.from_expr(f))
    assert analysis.check_basic_block_normal_form(normal["main"])
    assert analysis.check_basic_block_normal_form(Function((c, x), If(c, relay.nn.relu(x), relay.negative(x))))


def test_lets_in_order_are_well_formed_and_others_are_not() -> None:
    x, a, b = x4(), x4("a"), x4("b")
    good = Let(a, relay.negative(x), Let(b, relay.exp(a), a + b))
    assert analysis.well_formed(good)
    assert analysis.well_formed(IRModule.from_expr(good))
    assert not analysis.well_formed(Let(b, relay.exp(a), Let(a, relay.negative(x), a + b)))  # a before its binding
    assert not analysis.well_formed(Let(a, relay.negative(x), Let(a, relay.exp(x), a)))  # bound twice
    assert not analysis.well_formed(Let(a, relay.negative(x), a) + a)  # used outside
    assert not analysis.well_formed(Let(a, relay.negative(a), a))
    inner = Function((a,), a)
    assert analysis.well_formed(Function((x,), relay.Call(inner, (x,))))
    assert not analysis.well_formed(Function((a,), relay.Call(inner, (a,))))


def test_features_name_the_constructs_in_use() -> None:
    x = x4()
    shared = relay.negative(x)
    assert analysis.detect_feature(shared) == {Feature.fVar, Feature.fCall, Feature.fOp}
    assert analysis.detect_feature(relay.add(shared, shared)) == {
        Feature.fVar,
        Feature.fCall,
        Feature.fOp,
        Feature.fGraph,
    }
    f = var("f", relay.FuncType((relay.TensorType((4,)),), relay.TensorType((4,))))
    loop = Let(f, Function((x,), relay.Call(f, (x,))), relay.Call(f, (const(np.zeros(4, "float32")),)))
    assert {Feature.fLet, Feature.fLetRec, Feature.fFunction} <= analysis.detect_feature(loop)
    module = IRModule.from_expr(x4())
    assert analysis.detect_feature(module, Tuple(())) >= {Feature.fFunction, Feature.fTuple}


def test_resnet_18_has_the_published_work_and_depth() -> None:
    module, _ = resnet.get_workload(num_layers=18)
    main = module["main"]
    projection = 64 * 64 * 56 * 56  # this form has one more shortcut convolution than the published one
    assert analysis.get_total_mac_number(main) == 1_814_073_344 + projection
    assert analysis.count_layers(main, ["nn.conv2d", "nn.dense"]) == 18
    assert analysis.list_op_freqs(module)["nn.conv2d"] == 21


@pytest.mark.parametrize(
    ("data", "weight", "attrs", "macs"),
    [
        ((1, 8, 6, 6), (16, 8, 3, 3), {"padding": 1}, 16 * 36 * 8 * 9),
        ((1, 8, 6, 6), (8, 1, 3, 3), {"padding": 1, "groups": 8}, 8 * 36 * 9),
        (
            (2, 6, 6, 8),
            (3, 3, 8, 16),
            {"data_layout": "NHWC", "kernel_layout": "HWIO", "channels": 16, "kernel_size": 3},
            2 * 16 * 16 * 8 * 9,
        ),
    ],
)
def test_macs_of_a_convolution_do_not_depend_on_its_layout(
    data: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, object], macs: int
) -> None:
    call = relay.nn.conv2d(var("d", shape=data), var("w", shape=weight), **attrs)
    assert analysis.get_total_mac_number(call) == macs


def test_macs_of_products_and_transposed_convolutions() -> None:
    a, b = var("a", shape=(3, 2, 5)), var("b", shape=(3, 7, 5))
    assert analysis.get_total_mac_number(relay.nn.batch_matmul(a, b)) == 3 * 2 * 7 * 5
    assert analysis.get_total_mac_number(relay.nn.dense(var("x", shape=(4, 9)), var("w", shape=(6, 9)))) == 4 * 9 * 6
    up = relay.nn.conv2d_transpose(var("d", shape=(1, 4, 5, 5)), var("w", shape=(4, 6, 2, 2)), strides=2)
    assert analysis.get_total_mac_number(up) == 4 * 25 * 6 * 4
    attrs = {"data_layout": "NCHW4c", "kernel_layout": "OHWI4i2o", "strides": 2}
    data, weight = var("d", shape=(1, 1, 5, 5, 4)), var("w", shape=(3, 2, 2, 1, 4, 2))
    blocked = relay.cpu.conv2d_transpose_NCHWc(data, weight, **attrs)
    assert analysis.get_total_mac_number(blocked) == 4 * 25 * 6 * 4


def test_macs_of_attention_count_both_products_of_each_head() -> None:
    query, joint = var("q", shape=(2, 5, 3, 8)), var("kv", shape=(2, 7, 6, 8))
    call = relay.nn.attention(query, joint, joint, heads=3, offsets=(0, 0, 3))
    assert analysis.get_total_mac_number(call) == 2 * 3 * 5 * 7 * (8 + 8)
    turned = relay.nn.attention(query, var("k", shape=(2, 3, 8, 7)), joint, key_layout="BHDT", offsets=(0, 0, 3))
    assert analysis.get_total_mac_number(turned) == 2 * 3 * 5 * 7 * (8 + 8)


def test_macs_are_the_same_after_layouts_were_chosen() -> None:
    d, w = var("d", shape=(1, 64, 14, 14)), const(np.ones((32, 64, 3, 3), "float32"))
    module = IRModule.from_expr(Function((d,), relay.nn.conv2d(d, w, padding=1)))
    with PassContext(opt_level=3):
        after, _ = relay.optimize(module, "llvm -mcpu=skylake-avx512")
    assert "contrib_conv2d" in after.astext(False)
    assert analysis.get_total_mac_number(after) == analysis.get_total_mac_number(module) == 32 * 196 * 64 * 9


def test_equal_kernels_are_extracted_once() -> None:
    x = x4()
    split = relay.nn.softmax(relay.nn.softmax(relay.exp(x)))
    with PassContext(opt_level=3):
        after, _ = relay.optimize(IRModule.from_expr(Function((x,), split)), "llvm")
    found = analysis.extract_fused_functions(after)
    assert len(found) == 2 < after.astext(False).count("nn.softmax") + 1
    assert all(f.get_attr("Primitive") == 1 and f.get_attr("hash") == key for key, f in found.items())


def test_operators_between_dequantize_and_quantize_are_counted() -> None:
    zero = relay.const(0)
    x, w = relay.var("x", shape=(4, 8), dtype="int8"), relay.var("w", shape=(6, 8), dtype="int8")
    real = relay.qnn.dequantize(x, relay.const(2.0), zero)
    product = relay.nn.dense(real, relay.qnn.dequantize(w, relay.const(0.5), zero))
    whole = relay.qnn.quantize(relay.nn.relu(product), relay.const(1.0), zero, out_dtype="int8")
    counted = analysis.list_fake_quantized_op_freqs(IRModule.from_expr(relay.sigmoid(whole)))
    assert counted == {"nn.dense": 1, "nn.relu": 1}
    never = relay.qnn.quantize(real + relay.var("y", shape=(4, 8)), relay.const(1.0), zero)
    assert analysis.list_fake_quantized_op_freqs(never) == {}


def test_a_value_inside_a_function_becomes_a_module() -> None:
    x = relay.var("x", shape=(2,))
    mod = IRModule.from_expr(relay.exp(relay.nn.relu(x)))
    assert analysis.extract_intermdeiate_expr(mod, 0)["main"].body.op.name == "nn.relu"
    with pytest.raises(TypeMismatch, match="there is no expression 2"):
        analysis.extract_intermediate_expr(mod, 2)


def _two_functions() -> tuple[IRModule, relay.GlobalVar, relay.GlobalVar]:
    x0, x1, x = (relay.var(name, shape=(2,)) for name in ("x0", "x1", "x"))
    inner, outer = relay.GlobalVar("inner"), relay.GlobalVar("outer")
    mod = IRModule({inner: relay.Function([x0], relay.exp(x0)).with_attr("Compiler", "acme")})
    mod[outer] = relay.Function([x1], x1 - relay.const(1.0)).with_attr("Compiler", "acme")
    mod["main"] = relay.Function([x], relay.nn.relu(inner(outer(x))))
    return mod, inner, outer


def test_a_call_graph_counts_calls_and_references() -> None:
    mod, inner, _ = _two_functions()
    graph = analysis.CallGraph(mod)
    assert graph.ref_count(inner) == 1 and graph.global_call_count("main") == 2 and not graph.is_recursive(inner)
    assert "inner, #refs = 1" in str(graph)
    with pytest.raises(ModelError, match="has no function 'other'"):
        graph.ref_count("other")


def test_what_goes_in_and_out_of_a_librarys_functions() -> None:
    mod, inner, outer = _two_functions()
    values = np.array([1.5, -2.0], "float32")
    found = analysis.get_calibration_data(mod, {"x": values})
    np.testing.assert_allclose(found[outer]["outputs"][0].numpy(), values - 1)
    np.testing.assert_allclose(found[inner]["inputs"][0].numpy(), values - 1)
    np.testing.assert_allclose(found[inner]["outputs"][0].numpy(), np.exp(values - 1), rtol=1e-6)
    y = relay.var("y", shape=(2,))
    mod["main"] = relay.Function([y], outer(outer(y)))
    with pytest.raises(UnsupportedError, match="@outer is called more than once"):
        analysis.get_calibration_data(mod, {"y": values})


def test_annotated_regions_are_sets_of_nodes() -> None:
    x = relay.var("x", shape=(2,))
    begin = relay.annotation.compiler_begin(x, "acme")
    middle = relay.exp(begin)
    end = relay.annotation.compiler_end(middle, "acme")
    (region,) = analysis.AnnotatedRegionSet(relay.Function([x], relay.nn.relu(end)))
    assert region.target == "acme" and region.nodes == (begin, middle, end)
    assert region.args == [begin] and region.rets == [end]


def test_features_of_data_types_and_cells() -> None:
    features = analysis.detect_feature(Prelude().mod)
    assert {Feature.fMatch, Feature.fConstructor} <= features and Feature.fGraph not in features
    cell = relay.RefCreate(relay.const(1.0))
    assert analysis.detect_feature(relay.RefRead(cell)) == {Feature.fRefRead, Feature.fRefCreate, Feature.fConstant}
