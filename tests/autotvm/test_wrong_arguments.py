"""Whatever a script gives to tuning, to devices elsewhere and to the tools of the command line by mistake: it is told
what was got and what is wanted, by an error of ours."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import templates  # noqa: F401  (registers templates)

import armillary
from armillary import autotvm, relay, rpc
from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.transforms import SplitEntity
from armillary.autotvm.tuner import GATuner, GridSearchTuner, ModelTuner, RandomTuner, XGBTuner
from armillary.driver.tvmc import transform
from armillary.errors import ArmillaryError, InternalError
from armillary.ir import IRModule
from armillary.runtime.benchmark import Timing
from armillary.runtime.container import enabled

WRONG = (
    None,
    object(),
    -1,
    1 << 70,
    float("nan"),
    "a\0b",
    "\udc80",
    b"x",
    [],
    {},
    (1,),
    [None],
    {"a": 1},
    np.zeros(2),
    len,
)
Given = Mapping[str, Any]  # Any: whatever a function takes


def task() -> autotvm.Task:
    return autotvm.task.create("test/matmul", (8, 8, 8, "float32"), "llvm")


def module() -> IRModule:
    x = relay.var("x", shape=(1, 3, 4, 4))
    return IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


PORT = closed_port()
FUNCTIONS: dict[str, tuple[Callable[..., Any], Given]] = {
    "ConfigEntity": (autotvm.ConfigEntity, {"index": 0, "code_hash": None, "entity_map": {"a": SplitEntity((-1, 2))}}),
    "ConfigSpace.get": (lambda index: task().config_space.get(index), {"index": 0}),
    "define_split": (
        lambda **given: autotvm.ConfigSpace().define_split(**given),
        {"name": "a", "axis": 8, "policy": "factors", "num_outputs": 2, "max_factor": 4, "candidate": ()},
    ),
    "define_reorder": (
        lambda **given: autotvm.ConfigSpace().define_reorder(**given),
        {"name": "a", "axes": [], "policy": "all", "candidate": (), "interval": (0, 0)},
    ),
    "define_annotate": (
        lambda **given: autotvm.ConfigSpace().define_annotate(**given),
        {"name": "a", "axes": [], "policy": "try_unroll", "num_anchor": 1},
    ),
    "define_knob": (lambda **given: autotvm.ConfigSpace().define_knob(**given), {"name": "a", "candidate": [1]}),
    "Task": (autotvm.Task, {"name": "test/matmul", "args": (8, 8, 8, "float32")}),
    "task.create": (autotvm.task.create, {"task_name": "x", "args": (1,), "target": "llvm", "target_host": None}),
    "template": (autotvm.template, {"task_name": "test/other", "func": len}),
    "register_topi_compute": (autotvm.register_topi_compute, {"task_name": "test/other2", "func": len}),
    "extract_from_program": (
        autotvm.task.extract_from_program,
        {"mod": module(), "params": {}, "target": "llvm", "ops": None},
    ),
    "LocalRunner": (
        autotvm.LocalRunner,
        {"timeout": 1, "number": 1, "repeat": 1, "min_repeat_ms": 0, "cooldown_interval": 0, "seed": 0},
    ),
    "RPCRunner": (
        autotvm.RPCRunner,
        {"key": "a", "host": "h", "port": 1, "priority": 1, "timeout": 1, "n_parallel": 1, "number": 1, "repeat": 1},
    ),
    "LocalBuilder": (
        autotvm.LocalBuilder,
        {"timeout": 1, "n_parallel": 1, "build_kwargs": {}, "build_func": "default"},
    ),
    "measure_option": (autotvm.measure_option, {"builder": "local", "runner": "local"}),
    "create_measure_batch": (autotvm.create_measure_batch, {"task": None, "option": {}}),
    "XGBTuner": (
        XGBTuner,
        {"task": task(), "plan_size": 8, "feature_type": "knob", "loss_type": "reg", "num_threads": 1,
         "optimizer": "sa", "diversity_filter_ratio": None, "log_interval": 5, "seed": 1},
    ),
    "GATuner": (GATuner, {"task": task(), "pop_size": 8, "elite_num": 3, "mutation_prob": 0.1, "seed": 1}),
    "RandomTuner": (RandomTuner, {"task": task(), "range_idx": (0, 3), "seed": 1}),
    "GridSearchTuner": (GridSearchTuner, {"task": task(), "range_idx": (0, 3), "seed": 1}),
    "ModelTuner": (ModelTuner, {"task": task(), "worth": 0.1, "seed": 1}),
    "tune": (
        lambda **given: RandomTuner(task(), (0, 0)).tune(**given),
        {"n_trial": 0, "measure_option": autotvm.measure_option(), "early_stopping": None, "callbacks": (),
         "si_prefix": "G"},
    ),
    "progress_bar": (autotvm.callback.progress_bar, {"total": 1, "prefix": "", "si_prefix": "G"}),
    "log_to_file": (autotvm.callback.log_to_file, {"file_out": "x.log", "protocol": "json"}),
    "ApplyHistoryBest": (autotvm.ApplyHistoryBest, {"records": []}),
    "rpc.connect": (rpc.connect, {"url": "127.0.0.1", "port": PORT, "key": "", "session_timeout": 1, "secret": None}),
    "rpc.connect_tracker": (rpc.connect_tracker, {"url": "127.0.0.1", "port": PORT, "secret": None, "user": ""}),
    "request_remote": (
        autotvm.measure.request_remote,
        {"device_key": "k", "host": "127.0.0.1", "port": PORT, "priority": 1, "timeout": 1, "wait_for_key": 1},
    ),
    "Timing": (Timing, {"number": 1, "repeat": 1, "min_repeat_ms": 0, "cooldown_interval_ms": 0, "f_preproc": ""}),
    "enabled": (enabled, {"target": "llvm"}),
    "device": (armillary.device, {"kind": "cpu", "index": 0}),
    "apply_graph_transforms": (transform.apply_graph_transforms, {"mod": module(), "args": {}}),
    "convert_to_mixed_precision": (
        transform.convert_to_mixed_precision,
        {"mod": module(), "ops": None, "calculation_type": "float16", "acc_type": "float16"},
    ),
    "convert_graph_layout": (transform.convert_graph_layout, {"mod": module(), "desired_layout": "NHWC", "ops": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_argument_of_any_kind_ends_in_an_error_of_ours_or_is_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = FUNCTIONS[name]
    refused = 0
    for argument in given:
        for wrong in WRONG:
            error = error_of(lambda: function(**{**given, argument: wrong}))  # noqa: B023  (called at once)
            assert error is None or (isinstance(error, ArmillaryError) and not isinstance(error, InternalError)), (
                argument,
                wrong,
                error,
            )
            refused += error is not None
    assert refused >= len(WRONG) // 3, "most of these are no arguments"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: autotvm.LocalRunner(timeout="10"), "LocalRunner: timeout='10': wanted a number above 0"),
        (lambda: autotvm.LocalRunner(repeat=2.5), "LocalRunner: repeat=2.5: wanted a whole number of at least 1"),
        (lambda: autotvm.LocalBuilder(n_parallel=0), "LocalBuilder: n_parallel=0: wanted a whole number of at least 1"),
        (lambda: RandomTuner("resnet"), "RandomTuner: task='resnet': wanted a task"),
        (lambda: autotvm.measure_option(7), 'measure_option: builder=7: wanted "local", or a builder, with set_task'),
        (lambda: autotvm.Task("a", 5), r"Task: args=5: wanted a list of numbers, texts and tensors"),
        (lambda: autotvm.ConfigEntity(0, None, {"tile": 4}), r"ConfigEntity: entity_map\['tile'\]=4: wanted an entity"),
        (lambda: autotvm.task.extract_from_program("net.onnx"), "mod='net.onnx': wanted a module or a function"),
    ],
)  # fmt: skip
def test_the_error_names_the_argument_what_was_got_and_what_is_wanted(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        call()
