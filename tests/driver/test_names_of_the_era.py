"""What scripts of 0.6 to 0.19 import is there: under its own name, as something else, or with a sentence."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import meta_schedule, relay, te
from armillary.base import old_modules
from armillary.errors import ConfigError, ScheduleError, UnsupportedError
from armillary.ir.diagnostics import get_renderer, override_renderer
from armillary.transform import PassContext


@pytest.mark.parametrize("name", sorted(old_modules.table()))
def test_every_line_of_the_table_leads_somewhere(name: str) -> None:
    sign, rest = old_modules.table()[name]
    package, _, last = f"armillary.{name}".rpartition(".")
    value = old_modules.old_name(package, last)
    if not old_modules.is_module(name):
        assert value is not None
        return
    module = importlib.import_module(f"armillary.{name}")
    assert module is value
    for word in rest.split() if sign == ":" and not rest.startswith("operators") else ():
        short, equals, _ = word.partition("=")
        assert not equals or getattr(module, short) is not None


def test_a_line_for_what_has_a_file_is_dead() -> None:
    package = Path(armillary.__file__).parent
    places = {name: package.joinpath(*name.split(".")) for name in old_modules.table() if old_modules.is_module(name)}
    assert [n for n, at in places.items() if at.with_suffix(".py").exists() or (at / "__init__.py").exists()] == []


def test_scripts_of_0_6_compute() -> None:
    a = armillary.placeholder((16,), name="A")
    k = armillary.reduce_axis((0, 16), name="k")
    b = armillary.compute((1,), lambda i: armillary.sum(a[k], axis=k), name="B")
    s = armillary.create_schedule(b.op)
    function = armillary.build(s, [a, b], "llvm")
    ctx = armillary.context("llvm", 0)
    values = armillary.nd.array(np.arange(16, dtype="float32"), ctx)
    result = armillary.nd.empty((1,), "float32", ctx)
    function(values, result)
    assert result.numpy()[0] == 120


def test_operators_are_imported_as_modules() -> None:
    script = (
        "import armillary.relay.op.nn, armillary.relay.qnn.op, armillary.relay.op.tensor as t\n"
        "from armillary.relay.op.tensor import exp\n"
        "from armillary.relay.op.nn import conv2d\n"
        "from armillary.relay.qnn.transform import Legalize\n"
        "from armillary import relay\n"
        "x = relay.var('x', shape=(2,))\n"
        "print(relay.op.nn.relu(exp(x)).checked_type, relay.nn.relu(t.add(x, x))._checked_type_)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "Tensor[(2,), float32] Tensor[(2,), float32]\n", done.stderr


def test_what_was_left_out_says_what_is_used_instead() -> None:
    tensorrt = importlib.import_module("armillary.relay.op.contrib.tensorrt")
    with pytest.raises(
        UnsupportedError, match=r"relay\.op\.contrib\.tensorrt\.partition_for_tensorrt is not there"
    ) as e:
        tensorrt.partition_for_tensorrt(None)
    assert "there is no TensorRT here" in str(e.value)
    assert not hasattr(tensorrt, "__file__")


def test_names_that_never_were_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'placeholders'"):
        armillary.placeholders  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("armillary.relay.op.no_such_module")


def test_a_tracker_is_one_class() -> None:
    assert armillary.rpc.tracker.Tracker is armillary.rpc.Tracker
    assert armillary.rpc.server.Server is armillary.rpc.Server


@pytest.mark.parametrize("level", [5, 7, 10])
def test_a_level_above_the_highest_is_as_the_highest(level: int) -> None:
    x = relay.var("x", shape=(2, 3))
    module = armillary.IRModule.from_expr(relay.nn.softmax(relay.exp(x)))
    texts = []
    for opt_level in (4, level):
        with PassContext(opt_level=opt_level):
            texts.append(str(relay.optimize(module, "llvm")[0]))
    assert texts[0] == texts[1]


def test_trace_is_called_before_and_after_each_pass() -> None:
    calls: list[tuple[str, bool]] = []
    module = armillary.IRModule.from_expr(relay.exp(relay.var("x", shape=(2,))))
    with PassContext(opt_level=3, trace=lambda mod, info, before: calls.append((info.name, before))):
        relay.transform.FoldConstant()(module)
    assert calls == [("FoldConstant", True), ("FoldConstant", False)]
    with pytest.raises(ConfigError, match="trace is 3, wanted a function"):
        PassContext(trace=3)  # type: ignore[arg-type]


def test_what_is_no_pass_is_refused_as_a_lower_pass() -> None:
    a = te.placeholder((4,))
    b = te.compute((4,), lambda i: a[i])
    with PassContext(config={"tir.add_lower_pass": [(1, print)]}), pytest.raises(ConfigError, match="prim_func_pass"):
        armillary.lower(te.create_schedule(b.op), [a, b])


def test_lowered_loops_print_without_the_shapes_of_the_caller() -> None:
    a = te.placeholder((4, 5), name="A")
    b = te.compute((4, 5), lambda i, j: a[i, j], name="B")
    module = armillary.lower(te.create_schedule(b.op), [a, b])
    assert "tensor_shapes" not in str(module)
    assert "tensor_shapes" in module.astext()  # which parses back to what the same arguments are given to


def _sum(parallel: bool) -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((16, 8), name="A")
    k = te.reduce_axis((0, 16), name="k")
    b = te.compute((8,), lambda i: te.sum(a[k, i], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].reorder(k, b.op.axis[0])
    if parallel:
        s[b].parallel(k)
    return s, [a, b]


def test_a_parallel_reduction_prints_and_is_refused_when_built() -> None:
    schedule, args = _sum(True)
    assert "for k in range(16) parallel" in str(armillary.lower(schedule, args, simple_mode=True))
    with pytest.raises(ScheduleError, match="iterations of the parallel loop k add to one element of B"):
        armillary.build(schedule, args, "llvm")
    armillary.build(*_sum(False), "llvm")


def test_a_group_moves_with_an_argument_among_its_stages() -> None:
    a, b = (te.placeholder((8, 8), name=name) for name in "AB")
    d = te.compute((8, 8), lambda i, j: a[i, j] + b[i, j], name="D")
    e = te.compute((8, 8), lambda i, j: d[i, j] + b[i, j], name="E")
    f = te.compute((8, 8), lambda i, j: e[i, j] + 1, name="F")
    s = te.create_schedule(f.op)
    group = s.create_group(outputs=e, inputs=[a, b], include_inputs=True)
    group.compute_at(s[f], f.op.axis[1])
    with pytest.warns(UserWarning, match="stage E is an argument"):
        function = armillary.build(s, [a, b, e, f], "llvm")
    x, y, first, last = (armillary.nd.array(np.random.default_rng(n).random((8, 8), "float32")) for n in range(4))
    function(x, y, first, last)
    np.testing.assert_allclose(first.numpy(), x.numpy() + 2 * y.numpy(), rtol=1e-6)
    np.testing.assert_allclose(last.numpy(), x.numpy() + 2 * y.numpy() + 1, rtol=1e-6)


def test_the_logger_of_tuning_prints_what_no_handler_takes() -> None:
    script = (
        "import logging, sys; from armillary import autotvm\n"
        "from armillary.autotvm.task.dispatcher import logger\n"
        "logger.debug('silent'); logging.getLogger('autotvm').setLevel(logging.DEBUG); logger.debug('first')\n"
        "logging.getLogger('autotvm').addHandler(logging.StreamHandler(sys.stdout)); logger.debug('second')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout) == ("first\n", "second\n")


def test_a_build_in_steps_gives_the_parts() -> None:
    x = relay.var("x", shape=(1, 4))
    w = np.ones((3, 4), "float32")
    function = relay.Function([x], relay.nn.dense(x, relay.const(w)))
    builder = relay.build_module.BuildModule()
    graph, library, params = builder.build(armillary.IRModule.from_expr(function), target="llvm")
    assert graph == builder.get_graph_json()
    module = armillary.contrib.graph_executor.create(graph, library, armillary.cpu())
    module.set_input(**params)
    module.set_input("x", np.ones((1, 4), "float32"))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.full((1, 3), 4, "float32"))


def test_one_call_is_lowered_by_the_compiler_of_functions() -> None:
    te_compiler = importlib.import_module("armillary.relay.backend.te_compiler")
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    inputs = [te.placeholder((3,), name=name) for name in "xy"]
    lowered = te_compiler.lower_call(relay.add(x, y), inputs, armillary.target.Target("llvm"))
    assert [tuple(map(int, t.shape)) for t in lowered.outputs] == [(3,)]
    function = te_compiler.get().jit(relay.Function([x, y], relay.add(x, y)))
    values = [armillary.nd.array(np.float32([1, 2, 3])) for _ in range(3)]
    function(*values)
    assert values[2].numpy().tolist() == [2, 4, 6]


def test_a_tag_stands_for_a_target() -> None:
    target = armillary.target.Target("raspberry-pi/4b-aarch64")
    assert target.attrs["mcpu"] == "cortex-a72" and "arm_cpu" in target.keys
    assert "raspberry-pi/4b-aarch64" in armillary.target.list_tags()


def test_a_rule_of_mixed_precision_is_asked() -> None:
    register = relay.op.register_mixed_precision_conversion
    register("nn.softmax", lambda call, mixed: [0, mixed, mixed], level=11)
    try:
        x = relay.var("x", shape=(2, 3))
        module = relay.transform.ToMixedPrecision()(armillary.IRModule.from_expr(relay.nn.softmax(x)))
        assert 'cast(%x, dtype="float16")' in str(module)
    finally:
        relay.op.get("nn.softmax").reset_attr("FTVMMixedPrecisionConversionType")


def test_renderers_are_those_that_a_script_sets() -> None:
    first, lines = get_renderer(), list[object]()
    override_renderer(lines.append)
    get_renderer().render("context")
    override_renderer(None)
    assert (lines, get_renderer()) == (["context"], first)


def test_attributes_are_taken_off() -> None:
    func = te.create_prim_func([te.compute((4,), lambda i: i, name="b")]).with_attr("note", 1)
    assert "note" not in dict(func.without_attr("note").attrs)
    with PassContext(config={"relay.backend.use_meta_schedule": True}):
        assert meta_schedule.is_meta_schedule_enabled()


def test_what_is_not_there_says_so_when_asked() -> None:
    assert armillary.contrib.cudnn.exists() is False
    assert armillary.runtime.profiler_vm.enabled() is False
    assert armillary.contrib.thrust.can_use_thrust("cuda", "sort") is False
    with pytest.raises(UnsupportedError, match="is not there"):
        armillary.contrib.cudnn.conv_forward()


def test_small_functions_of_scripts() -> None:
    base = importlib.import_module("armillary.rpc.base")
    keys = {base.random_key("board") for _ in range(20)}
    assert len(keys) == 20 and {base.split_random_key(key)[0] for key in keys} == {"board"}
    legalizations = importlib.import_module("armillary.relay.qnn.op.legalizations")
    np.testing.assert_allclose(legalizations.hardswish_func(np.array([-4.0, 0.0, 1.0, 4.0])), [0, 0, 2 / 3, 4])
    options = armillary.transform.PassContext.list_configs()
    assert options["relay.FuseOps.max_depth"]["type"] == "IntImm"
