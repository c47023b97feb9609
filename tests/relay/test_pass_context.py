"""PassContext: levels, lists, configuration, instruments, nesting; what a build does under it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary as tvm
from armillary import instrument, relay, te, tir
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import ConfigError, InternalError, TargetError, TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function, Var, const
from armillary.relay.op import LEGALIZE_RULES, get_op
from armillary.relay.well_formed import is_well_formed
from armillary.tir import stmt as S
from armillary.transform import PassContext, PassInfo, PassInstrument, Sequential, find_pass, module_pass

T = relay.transform


def network() -> IRModule:
    x = relay.var("x", shape=(2, 3))
    return IRModule.from_expr(Function([x], relay.exp(relay.nn.relu(relay.nn.relu(x)))))


class Recorder(PassInstrument):
    """Notes each hook; skips the passes in `skipped`."""

    def __init__(self, skipped: tuple[str, ...] = ()) -> None:
        self.seen: list[str] = []
        self.skipped = skipped

    def enter_pass_ctx(self) -> None:
        self.seen.append("enter")

    def exit_pass_ctx(self) -> None:
        self.seen.append("exit")

    def should_run(self, module: IRModule, info: PassInfo) -> bool:
        return info.name not in self.skipped

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        self.seen.append(f"before {info.name}")

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        self.seen.append(f"after {info.name}")


# --- which passes run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SimplifyExpr", "simplify-expr"])
def test_lists_take_both_spellings(name: str) -> None:
    passes = Sequential([T.SimplifyExpr(), T.FastMath()])
    with PassContext(opt_level=3, disabled_pass=[name], required_pass=["fast-math"]):
        text = str(passes(network()))
    assert text.count("nn.relu") == 2
    assert "fast_exp" in text


def test_a_loop_pass_is_known_without_its_prefix_and_aliases_hold() -> None:
    assert find_pass("UnrollLoop") is find_pass("tir.UnrollLoop") is find_pass("unroll-loop")
    assert find_pass("InlineGlobals").info.name == "Inline"
    assert find_pass("PlanDevicesRewrite").info.name == "PlanDevices"
    assert T.DeviceAnnotation().info.name == "PlanDevices"
    assert not PassContext(disabled_pass=["UnrollLoop"]).pass_enabled(find_pass("tir.UnrollLoop").info)


def test_a_disabled_loop_pass_does_not_run() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].unroll(s[b].op.axis[0])
    with PassContext(disabled_pass=["tir.UnrollLoop"]):
        assert "unrolled" in str(tvm.lower(s, [a, b]))
    assert "unrolled" not in str(tvm.lower(s, [a, b]))


def test_a_name_that_no_pass_has_warns_with_the_nearest() -> None:
    with pytest.warns(UserWarning, match="disabled_pass: there is no pass 'FuseOp'; similar: FuseOps"):
        PassContext(disabled_pass=["FuseOp"])

    @module_pass(opt_level=0, name="MyOwn")
    def own(module: IRModule, context: PassContext) -> IRModule:
        raise AssertionError("disabled")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with PassContext(disabled_pass=["MyOwn"]):
            Sequential([own])(network())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opt_level": "3"}, "opt_level is '3', wanted 0 to 4"),
        ({"opt_level": -1}, "opt_level is -1"),
        ({"disabled_pass": "FuseOps"}, "disabled_pass is the text 'FuseOps', wanted a list"),
        ({"instruments": [3]}, "instruments: 3 is no PassInstrument"),
        ({"config": {"tir.UnrolLoop": {}}}, "did you mean tir.UnrollLoop"),
        ({"config": {"relay.FuseOps.max_depths": 3}}, "known keys: .*relay.FuseOps.max_depth,.*tir.disable_vectorize"),
        ({"config": {"tir.disable_vectorize": 1}}, "tir.disable_vectorize: expected bool, got int 1"),
        ({"config": {"tir.UnrollLoop": {"auto_max_steps": 1}}}, "no option 'auto_max_steps'.*\n.*auto_max_step, "),
        ({"config": {"tir.UnrollLoop": {"explicit_unroll": 1}}}, "tir.UnrollLoop.'explicit_unroll'.: expected bool"),
        ({"config": {"relay.FuseOps.max_depth": True}}, "expected int, got bool"),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PassContext(**arguments)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_the_configuration_keys_are_listed_with_types_and_meanings() -> None:
    options = PassContext.list_configs()
    assert options["tir.UnrollLoop"].default["auto_max_depth"] == 8
    assert options["relay.FuseOps.max_depth"].default == 256
    assert all(option.doc for option in options.values())
    wanted = {
        "relay.FuseOps.max_depth",
        "relay.fallback_device_type",
        "relay.ToMixedPrecision.keep_orig_output_dtype",
        "tir.add_lower_pass",
        "tir.noalias",
        "tir.instrument_bound_checkers",
        "tir.disable_assert",
        "tir.disable_vectorize",
        "tir.disable_storage_rewrite",
        "tir.disable_cse_tir",
        "tir.enable_equiv_terms_in_cse_tir",
        "tir.debug_keep_trivial_loop",
        "tir.UnrollLoop",
        "tir.LoopPartition",
        "tir.HoistIfThenElse",
        "tir.InjectDoubleBuffer",
    }
    assert wanted <= set(options)


def test_contexts_nest_and_the_inner_one_holds_as_a_whole() -> None:
    assert PassContext.current().opt_level == 2
    with PassContext(3, config={"relay.FuseOps.max_depth": 7}) as outer:
        with PassContext(1) as inner:
            assert PassContext.current() is inner
            assert inner.config == {}
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2


def test_mixed_precision_keeps_its_result_by_configuration() -> None:
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(2, 4))
    module = IRModule.from_expr(Function([x, w], relay.nn.dense(x, w)))
    assert T.ToMixedPrecision()(module)["main"].body.checked_type.dtype == "float16"
    with PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        assert T.ToMixedPrecision()(module)["main"].body.checked_type.dtype == "float32"


# --- instruments ----------------------------------------------------------------------------------------------------


def test_an_instrument_sees_each_pass_and_may_skip_what_is_not_required() -> None:
    recorder = Recorder(skipped=("SimplifyExpr", "FastMath"))
    with PassContext(4, required_pass=["FastMath"], instruments=[recorder]):
        text = str(Sequential([T.InferType(), T.SimplifyExpr(), T.FastMath()])(network()))
    ran = ["before InferType", "after InferType", "before FastMath", "after FastMath"]
    assert recorder.seen == ["enter", *ran, "exit"]
    assert text.count("nn.relu") == 2


def test_an_instrument_of_a_build_sees_loop_passes_although_kernels_are_cached() -> None:
    library = relay.build(network(), "llvm")
    recorder = Recorder()
    with PassContext(3, instruments=[recorder]):
        relay.build(network(), "llvm")
    assert {"before FuseOps", "before tir.StorageFlatten", "after tir.UnrollLoop"} <= set(recorder.seen)
    count = len(recorder.seen)
    assert "func @" in library.get_source("tir")
    assert len(recorder.seen) == count


def test_objects_and_decorated_classes_with_some_hooks_are_instruments() -> None:
    class Some:
        names: tuple[str, ...] = ()

        def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
            self.names += (info.name,)

    plain, decorated = Some(), instrument.pass_instrument(Some)()
    assert isinstance(decorated, PassInstrument)
    with PassContext(instruments=[plain, decorated]):
        T.InferType()(network())
    assert plain.names == decorated.names == ("InferType",)


def test_a_failing_instrument_leaves_no_context_behind() -> None:
    class Failing(PassInstrument):
        def enter_pass_ctx(self) -> None:
            raise RuntimeError("no")

    recorder = Recorder()
    context = PassContext(1, instruments=[recorder, Failing()])
    with pytest.raises(RuntimeError, match="no"), context:
        pass
    assert recorder.seen == ["enter", "exit"]
    assert PassContext.current().opt_level == 2


def test_instruments_can_be_changed_inside() -> None:
    first, second = Recorder(), Recorder()
    with PassContext(instruments=[first]) as context:
        T.InferType()(network())
        context.override_instruments([second])
        T.SimplifyExpr()(network())
    assert first.seen[-1] == "exit"
    assert second.seen == ["enter", "before SimplifyExpr", "after SimplifyExpr", "exit"]


def test_times_texts_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timing, texts = instrument.PassTimingInstrument(), []
    shown = instrument.PrintAfter(lambda name, text: texts.append(name), ["simplify-expr"])
    changes = instrument.PrintChanges(lambda name, text: texts.append(f"changed {name}"))
    watchers = [timing, shown, changes, instrument.DumpIR(tmp_path), instrument.PrintBeforeAll()]
    with PassContext(4, instruments=watchers):
        Sequential([T.InferType(), T.SimplifyExpr(), T.FastMath()])(network())
    assert set(timing.seconds) == {"InferType", "SimplifyExpr", "FastMath"}
    assert "SimplifyExpr" in timing.render()
    assert texts == ["changed InferType", "SimplifyExpr", "changed SimplifyExpr", "changed FastMath"]
    names = ["000_InferType.txt", "001_SimplifyExpr.txt", "002_FastMath.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert "fast_exp" in (tmp_path / "002_FastMath.txt").read_text()
    assert "# before FastMath" in capsys.readouterr().out
    with PassContext(instruments=[instrument.DumpIR(tmp_path, refresh=True)]):
        T.InferType()(network())
    assert [p.name for p in tmp_path.iterdir()] == ["000_InferType.txt"]


def broken(kind: str) -> Any:
    def change(module: IRModule, context: PassContext) -> IRModule:
        function = module["main"]
        bodies = {
            "free": relay.add(function.params[0], Var("loose", function.params[0].checked_type)),
            "untyped": relay.add(function.params[0], const(np.zeros((5, 5), "float32"))),
            "wrong attributes": Call(get_op("nn.softmax"), (function.params[0],), None),
        }
        return IRModule.from_expr(Function(function.params, bodies[kind]))

    return module_pass(change, name=f"Break {kind}")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("free", "variable %loose is read, but neither a parameter nor bound"),
        ("untyped", "do not broadcast"),
        ("wrong attributes", "axis"),
    ],
)
def test_verify_names_the_pass_that_broke_the_module(kind: str, message: str) -> None:
    with PassContext(instruments=[instrument.VerifyIR()]):
        with pytest.raises((InternalError, AttributeError), match=message):
            broken(kind)(network())
        T.SimplifyExpr()(network())
    assert is_well_formed(network())


def test_verify_checks_loops_too() -> None:
    buffer = S.Buffer("A", (tir.const(4),), tvm.dtype.DType("float32"))
    wild = S.PrimFunc((buffer,), S.BufferStore(buffer, tir.const(0.0), (tir.Var("i"),)))
    spoil = module_pass(lambda module, context: IRModule({"main": wild}), name="Spoil")
    with PassContext(instruments=[instrument.VerifyIR()]), pytest.raises(InternalError, match="pass Spoil left"):
        spoil(IRModule({"main": wild}))


# --- user passes in a build -----------------------------------------------------------------------------------------


def test_user_loop_passes_run_in_their_phase_and_change_the_compiled_code() -> None:
    order: list[str] = []

    def noting(label: str, body: Any = None) -> Any:
        def visit(func: S.PrimFunc, module: IRModule, context: PassContext) -> S.PrimFunc:
            order.append(f"{label}: {len(func.params[0].shape)}")
            return func if body is None else body(func)

        return tir.transform.prim_func_pass(visit, opt_level=0, name=label)

    def zero(func: S.PrimFunc) -> S.PrimFunc:
        out = func.params[-1]
        fill = S.For(tir.Var("i"), tir.const(0), out.shape[0], S.LoopKind.SERIAL, S.Evaluate(tir.const(0)))
        store = S.BufferStore(out, tir.const(7.0), (fill.var,))
        return S.PrimFunc(func.params, S.For(fill.var, fill.min, fill.extent, fill.kind, store), func.attrs)

    passes = [(k, noting(f"phase{k}")) for k in (3, 0, 2, 1)]
    with PassContext(3, config={"tir.add_lower_pass": [*passes, (5, noting("last", zero))]}):
        library = relay.build(network(), "llvm")
    graph = GraphModule(library["default"](tvm.cpu(0)))
    graph.run(x=np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(graph.get_output(0).numpy(), np.full((2, 3), 7, "float32"))
    assert order == ["phase0: 2", "phase1: 1", "phase2: 1", "phase3: 1", "last: 1"]
    plain = GraphModule(relay.build(network(), "llvm")["default"](tvm.cpu(0)))
    plain.run(x=np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(plain.get_output(0).numpy(), np.ones((2, 3), "float32"))


@pytest.fixture
def relu_rule() -> Any:
    yield lambda rule, **kw: relay.op.register_legalize("nn.relu", rule, **kw)
    LEGALIZE_RULES.pop("FTVMLegalize", None)


def test_a_registered_rule_rewrites_its_operator_in_the_build(relu_rule: Any) -> None:
    seen: list[Any] = []

    def as_maximum(attrs: Any, inputs: list[Any], types: list[Any]) -> Any:
        seen.append((tvm.target.Target.current().kind.name, len(types)))
        return relay.maximum(inputs[0], const(0.0))

    relu_rule(as_maximum)
    assert "nn.relu" not in str(T.Legalize(target="llvm")(network()))
    with PassContext(3):
        text = relay.build(network(), "llvm").get_source("relay")
    assert "maximum" in text
    assert "nn.relu" not in text
    assert set(seen) == {("llvm", 2)}
    with pytest.raises(ConfigError, match=r"'nn\.relu' has a FTVMLegalize rule of level 10 already"):
        relu_rule(as_maximum)
    relu_rule(lambda attrs, inputs, types: None, level=11)
    assert str(T.Legalize()(network())).count("nn.relu") == 2


def test_a_rule_that_changes_the_type_is_named(relu_rule: Any) -> None:
    def narrow(attrs: Any, inputs: list[Any], types: list[Any]) -> Any:
        return relay.cast(inputs[0], "float16")

    relu_rule(narrow)
    with pytest.raises(TypeMismatch, match=r"rule narrow of nn.relu gives Tensor\[\(2, 3\), float16\]"):
        T.Legalize()(network())


def test_a_shared_cast_is_fused_into_each_of_its_readers() -> None:
    x = relay.var("x", shape=(4,), dtype="int8")
    wide = relay.cast(x, "float32")
    ends = [relay.sum(relay.nn.relu(wide), axis=[0]), relay.max(relay.negative(wide), axis=[0])]
    with PassContext(3):
        text = relay.build(IRModule.from_expr(Function([x], relay.expr.Tuple(tuple(ends)))), "llvm").get_source("relay")
    assert text.count("cast(") == 2
    assert text.count("Primitive=1") == 2


# --- devices --------------------------------------------------------------------------------------------------------


def annotated(device: int) -> IRModule:
    x = relay.var("x", shape=(3,))
    return IRModule.from_expr(Function([x], relay.negative(relay.annotation.on_device(relay.nn.relu(x), device))))


def test_notes_for_the_targets_own_device_cost_nothing() -> None:
    with PassContext(3):
        text = relay.build(annotated(1), "llvm").get_source("relay")
    assert "on_device" not in text
    assert text.count("Primitive=1") == 1


def test_a_note_for_another_device_is_refused_by_a_build() -> None:
    with pytest.raises(TargetError, match=r"annotation.on_device asks for device type 4, the target has device type 1"):
        relay.build(annotated(4), "llvm")


def test_the_fallback_device_comes_from_the_configuration() -> None:
    with PassContext(config={"relay.fallback_device_type": 4}):
        text = str(T.PlanDevices()(annotated(1)))
    assert text.index("device_copy(%x, src_dev_type=4, dst_dev_type=1)") < text.index("src_dev_type=1, dst_dev_type=4")
    assert str(T.PlanDevices(tvm.cpu(0))(annotated(1))).count("device_copy") == 0


def test_copies_keep_what_is_computed() -> None:
    value = np.array([-1, 0, 2], "float32")
    planned = T.PlanDevices()(annotated(4))
    got = relay.create_executor("debug", planned).evaluate()(value)
    np.testing.assert_array_equal(got.numpy(), -np.maximum(value, 0))


class Broken(PassInstrument):
    """Cannot leave."""

    def exit_pass_ctx(self) -> None:
        raise RuntimeError("cannot leave")


def test_instruments_that_fail_to_leave_are_gone() -> None:
    context = PassContext(instruments=[Broken()])
    with pytest.raises(RuntimeError, match="cannot leave"), context:
        pass
    assert not context.instruments
    outer = PassContext()
    with outer:
        outer.override_instruments([Broken()])
        with pytest.raises(RuntimeError, match="cannot leave"):
            outer.override_instruments([PassInstrument()])
        assert not outer.instruments
