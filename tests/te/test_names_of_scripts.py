"""What scripts of the Relay era read from schedules, and steps of compiling under their old names."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
import armillary.driver.build  # the module, which is callable too
from armillary import relay, te, tir
from armillary.driver.build_module import schedule_to_module
from armillary.errors import TypeMismatch

RNG = np.random.default_rng(2)


def _chain():
    m, n = te.var("m"), te.var("n")
    x = te.compute((m, n), lambda i, j: tir.const(1, "float32"), name="x")
    x1 = te.compute(x.shape, lambda *i: x(*i) + 1, name="x1")
    x2 = te.compute(x.shape, lambda *i: x1(*i) + 2, name="x2")
    return n, x, x1, x2, te.create_schedule(x2.op)


def test_a_group_around_another_is_its_group() -> None:
    _, x, x1, _, s = _chain()
    g1 = s.create_group(outputs=x1, inputs=x)
    g2 = s.create_group(outputs=x1, inputs=x, include_inputs=True)
    assert s.groups == [g1, g2]
    assert (s[x].group, s[x1].group, g1.group) == (g2, g1, g2)
    assert (g1.num_child_stages, g2.num_child_stages) == (1, 2)


def test_a_group_inside_another_is_its_child() -> None:
    _, x, x1, _, s = _chain()
    outer = s.create_group(outputs=x1, inputs=x, include_inputs=True)
    inner = s.create_group(outputs=x, inputs=x, include_inputs=True)
    assert inner.group is outer and s[x].group is inner and s[x1].group is outer
    assert (outer.num_child_stages, inner.num_child_stages) == (2, 1)


def test_a_nested_group_moves_inside_its_group() -> None:
    n, x, x1, x2, s = _chain()
    g1 = s.create_group(outputs=x, inputs=x, include_inputs=True)
    g2 = s.create_group(outputs=x1, inputs=x, include_inputs=True)
    g2.compute_at(s[x2], x2.op.axis[0])
    g1.compute_at(s[x1], s[x1].op.axis[1])
    assert g1.attach_stage is s[x1] and g2.attach_stage is s[x2]
    bounds = te.schedule.InferBound(s)
    assert isinstance(bounds, armillary.container.Map)
    assert [bounds[a].extent.value for a in (*x.op.axis, x1.op.axis[0])] == [1, 1, 1]
    assert bounds[x1.op.axis[1]].extent is n


def test_stages_tell_their_loops_by_the_old_numbers() -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="c")
    s = te.create_schedule(c.op)
    assert s[b].attach_type == 1
    s[b].compute_inline()
    assert s[b].attach_type == 2
    outer, inner = s[c].split(c.op.axis[0], factor=8)
    s[c].vectorize(inner)
    s[c].pragma(outer, "note")
    notes = s[c].iter_var_attrs
    assert notes[inner].iter_type == tir.IterVar.Vectorized
    assert notes[outer].iter_type == tir.IterVar.DataPar
    assert [key.value for key in notes[outer].pragma_keys] == ["note"]
    assert isinstance(s[c].relations[0], te.schedule.Split)


@pytest.mark.parametrize("free", [True, False])
def test_a_split_may_run_beyond_the_end(free: bool) -> None:
    a = te.placeholder((43,), name="a")
    b = te.compute(a.shape, lambda i: a[i] + 2, name="b")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=4, disable_predication=free)
    found: list[tir.IfThenElse] = []
    module = schedule_to_module(s, [a, b])
    tir.stmt_functor.post_order_visit(
        module["main"].body, lambda item: found.append(item) if isinstance(item, tir.IfThenElse) else None
    )
    assert len(found) == (0 if free else 1)
    again = te.apply_directives(te.create_schedule(b.op), s.directives())
    assert str(again) == str(s)


def test_a_stage_without_axes_gets_a_loop_of_one_iteration() -> None:
    a = te.placeholder((), name="a")
    b = te.compute((), lambda: a() + 1.0, name="b")
    s = te.create_schedule(b.op)
    fused = s[b].fuse()
    assert isinstance(s[b].relations[0], te.schedule.Singleton)
    assert s[b].leaf_iter_vars == (fused,)
    function = armillary.driver.build(s, [a, b], "llvm")
    result = armillary.nd.array(np.float32(0))
    function(armillary.nd.array(np.float32(3)), result)
    assert result.numpy() == 4


def test_a_builder_makes_arguments_of_any_length() -> None:
    builder = tir.ir_builder.create()
    data = builder.pointer("float32", name="data")
    with builder.for_range(0, 4) as i:
        data[i] = data[i] + 1.0
    function = tir.PrimFunc([data], builder.get()).with_attr("global_symbol", "f")
    assert function.buffer_map[function.params[0]] is data.asobject()
    values = armillary.nd.array(np.arange(6, dtype="float32"))
    armillary.build(function, target="llvm")(values)
    assert values.numpy().tolist() == [1, 2, 3, 4, 4, 5]
    assert isinstance(function.with_body(tir.Evaluate(0)).body, tir.Evaluate)


def test_old_places_of_names() -> None:
    import armillary._ffi as ffi

    assert ffi.base.TVMError is armillary.TVMError
    assert ffi.get_global_func is armillary.get_global_func
    assert ffi.registry.register_func is armillary.register_func
    assert ffi.runtime_ctypes.Device.kDLCPU == armillary.device("cpu").device_type
    assert ffi.runtime_ctypes.Device.kDLMetal == armillary.device("metal:2").device_type


@pytest.mark.parametrize("kind", ["cpu:", "cpu:?", "cpu:0:0"])
def test_a_device_without_a_number_behind_its_colon_is_a_value_error(kind: str) -> None:
    with pytest.raises(ValueError, match="unknown device kind"):
        armillary.device(kind)


def test_views_lie_inside_their_tensor() -> None:
    whole = armillary.nd.array(np.arange(1024, dtype="int32"))
    part = whole.view([512], relative_byte_offset=2048).view([2, 128], relative_byte_offset=1024)
    assert part.numpy().tolist() == np.arange(768, 1024).reshape(2, 128).tolist()
    part[0, 0] = -1
    assert whole.numpy()[768] == -1
    assert whole.view([1, 4], "uint8").numpy().tolist() == [[0, 0, 0, 0]]
    with pytest.raises(ValueError, match="would occupy bytes 2048 <= i_byte < 6144"):
        whole.view([1024], relative_byte_offset=2048)
    with pytest.raises(TypeMismatch, match="only contains 4096 bytes"):
        whole.view([2048])


def test_a_schedule_may_tell_what_it_was() -> None:
    a = te.placeholder((64, 64), name="a")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="b")
    with armillary.transform.PassContext(config={"te.keep_schedule_record": True}):
        s = te.create_schedule(b.op)
    s[b].tile(*b.op.axis, 8, 8)
    assert s.primitive_record == ["vanilla", "split", "split", "reorder"]
    assert [len(item.directives()) for item in s.schedule_record] == [0, 1, 2, 3]
    assert str(s.schedule_record[-1]) == str(s)
    assert te.create_schedule(b.op).schedule_record == []


def test_modules_in_a_list_are_built_as_one() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    modules = [armillary.lower(te.create_schedule(b.op), [a, b], name=name) for name in ("one", "two")]
    library = armillary.build(modules, target="llvm")
    result = np.zeros(4, np.float32)
    library["two"](np.arange(4, dtype=np.float32), result)
    assert result.tolist() == [1, 2, 3, 4]
    with pytest.raises(TypeMismatch, match="two modules have a function 'one'"):
        armillary.build([modules[0], modules[0]], target="llvm")


def test_a_virtual_device_holds_its_parts() -> None:
    target = armillary.target.Target("llvm")
    held = armillary.target.VirtualDevice(armillary.device("cuda:1"), target, "local")
    assert (held.device_type, held.virtual_device_id, held.target, held.memory_scope) == (2, 1, target, "local")
    assert armillary.target.VirtualDevice().target is None


def test_records_of_no_file_choose_nothing() -> None:
    from armillary import autotvm

    with autotvm.tophub.context("llvm") as held:
        assert held.best_by_targetkey == {}


def test_a_sum_of_everything_gets_a_loop_of_one_iteration_to_split() -> None:
    a = te.placeholder((24,), name="a")
    k = te.reduce_axis((0, 24), "k")
    b = te.compute((), lambda: te.sum(a[k], axis=k), name="b")
    s = te.create_schedule(b.op)
    s[b].split(s[b].fuse(), nparts=4)
    result = armillary.nd.array(np.float32(0))
    armillary.build(s, [a, b], "llvm")(np.arange(24, dtype=np.float32), result)
    assert result.numpy() == 276


def test_pragmas_of_loops_are_marks() -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    inner = s[b].split(b.op.axis[0], 8)[1]
    s[b].pragma(inner, "vectorize")
    assert s[b].iter_var_attrs[inner].iter_type == tir.IterVar.Vectorized


def test_scalar_beside_a_tensor_takes_its_type_and_any_sizes():
    n, k = te.var("n"), te.var("k")
    a = te.placeholder((n,), name="a")
    b = 3 + a * k - k
    s = te.create_schedule(b.op)
    te.schedule.AutoInlineInjective(s)
    run = armillary.build(s, [a, b, k, n])
    x = np.linspace(0.25, 1.0, 7, dtype="float32")
    got = np.zeros_like(x)
    run(x, got, 5)
    np.testing.assert_allclose(got, 3 + x * 5 - 5, rtol=1e-6)


def test_reducer_combines_values_that_are_no_axis():
    total = te.comm_reducer(lambda x, y: x + y, lambda t: tir.const(0, t))
    m, n = te.var("m"), te.var("n")
    assert str(total(m, n)) == "m + n"
    assert str(total(m, n, 2)) == "m + n + 2"


def test_intrinsic_lists_its_buffers_in_order():
    x, y = te.placeholder((4,), name="x"), te.placeholder((4,), name="y")
    z = te.compute((4,), lambda i: x[i] + y[i], name="z")
    intrinsic = te.decl_tensor_intrin(z.op, lambda ins, outs: tir.Evaluate(0))
    assert [buffer.name for buffer in intrinsic.buffers] == ["x", "y", "z"]


def test_scan_axis_has_a_range_and_one_input_needs_no_list():
    x = te.placeholder((5, 3), name="x")
    state = te.placeholder((5, 3))
    start = te.compute((1, 3), lambda _, i: x[0, i])
    update = te.compute((5, 3), lambda t, i: state[t - 1, i] + x[t, i])
    out = te.scan(start, update, state, inputs=x)
    found = te.schedule.InferBound(te.create_schedule(out.op))[out.op.scan_axis]
    assert (int(found.min), int(found.extent)) == (1, 4)


def test_attributes_come_from_a_mapping():
    function = tir.PrimFunc([], tir.Evaluate(0)).with_attr({"calling_conv": 1, "tir.noalias": True})
    assert (function.attrs["calling_conv"], function.attrs["tir.noalias"]) == (1, True)


def test_type_of_a_vendor_builtin_may_be_named():
    item = tir.ptx_ldmatrix(True, 4, ".b16", 0, dtype="float16")
    assert (item.dtype, item.name, len(item.args)) == ("float16", "ptx_ldmatrix", 4)


def test_functions_are_packed_functions_and_libraries_say_which_they_hold():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b")
    library = armillary.build(te.create_schedule(b.op), [a, b], name="plus")
    assert library.implements_function("plus")
    assert library.module.implements_function("plus")
    assert not library.implements_function("minus")
    assert isinstance(library["plus"], armillary.runtime.PackedFunc)
    assert isinstance(armillary.runtime.convert(lambda x: x), armillary.runtime.PackedFunc)
    assert not isinstance(3, armillary.runtime.PackedFunc)


def test_parameters_go_to_a_file_and_back(tmp_path):
    given = {"x": np.arange(5, dtype="float32"), "y": np.ones((2, 3), "int8")}
    armillary.runtime.save_param_dict_to_file(given, tmp_path / "p.params")
    blob = relay.save_param_dict(given)
    assert isinstance(blob, bytearray)
    for found in (relay.load_param_dict(blob), armillary.runtime.load_param_dict_from_file(tmp_path / "p.params")):
        assert list(found) == ["x", "y"] and found["x"].same_as(found["x"]) and not found["x"].same_as(found["y"])
        for name, value in given.items():
            np.testing.assert_array_equal(found[name].numpy(), value)


def test_loops_over_elements_that_are_vectors_stay_loops():
    a = te.placeholder((8,), "float32x2", name="a")
    b = te.compute((8,), lambda i: a[i] + tir.const(1, "float32x2"), name="b")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[0], 4)
    s[b].vectorize(inner)
    x = RNG.standard_normal((8, 2)).astype("float32")
    given, got = (armillary.nd.empty((8,), "float32x2") for _ in range(2))
    given.copyfrom(x)
    armillary.build(s, [a, b])(given, got)
    np.testing.assert_array_equal(got.numpy(), x + 1)


def test_sizes_that_are_arguments_may_be_given_and_must_be_true():
    n, m, k = te.var("n"), te.var("m"), te.var("k", "float32")
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] * k, name="b")
    run = armillary.build(te.create_schedule(b.op), [a, b, k, n, m])
    x, got = RNG.standard_normal((3, 5)).astype("float32"), np.zeros((3, 5), "float32")
    for sizes in ((), (3,), (3, 5)):
        got[:] = 0
        run(x, got, 2.0, *sizes)
        np.testing.assert_array_equal(got, x * 2)
    with pytest.raises(TypeMismatch, match="n is given as 4, the tensors have 3"):
        run(x, got, 2.0, 4, 5)
    with pytest.raises(TypeMismatch, match="4 scalar arguments given, but 1 are wanted"):
        run(x, got, 2.0, 3, 5, 7)


def _plus(name, number, target="llvm"):
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + number, name="b")
    return armillary.build(te.create_schedule(b.op), [a, b], target, name=name)


def test_libraries_are_joined(tmp_path):
    library, other = _plus("one", 1.0), _plus("two", 2.0)
    x, got = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    library["one"](x, got)
    library.import_module(other)
    library.export_library(str(tmp_path / "both.so"))
    for where in (library, armillary.runtime.load_module(str(tmp_path / "both.so"))):
        for name, number in (("one", 1), ("two", 2)):
            where.get_function(name, query_imports=True)(x, got)
            np.testing.assert_array_equal(got, x + number)
    assert "two__p0" in library.get_source()
    with pytest.raises(TypeMismatch, match="both have a function 'two'"):
        library.import_module(_plus("two", 3.0))
    with pytest.raises(TypeMismatch, match="wanted functions compiled for"):
        library.import_module(_plus("three", 3.0, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"))
