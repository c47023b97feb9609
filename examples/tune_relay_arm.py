"""Tune a network for a board, as scripts of the Relay era do, with `tvm` replaced by `armillary`.

    python examples/tune_relay_arm.py [PORT TARGET N_TRIAL PIXELS NETWORK]

PORT is that of a tracker on which a board serves under the key rk3399 (`python -m armillary.exec.rpc_server --tracker
HOST:PORT --key rk3399` on the board). Without arguments a tracker and a server start here, and a small network is tuned
for this machine. The notebook beside it has the same cells.
"""
# ruff: noqa: UP031, SIM102

# %%
import os
import sys

import numpy as np

import armillary
import armillary.contrib.graph_executor as runtime
import armillary.relay.testing
from armillary import autotvm, relay, rpc
from armillary.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner
from armillary.contrib.utils import tempdir

# %% [markdown]
# Where the board is, what is tuned for it, and how long. Without arguments: this machine.
# %%
device_key = "rk3399"
use_android = False
arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
if not arguments:
    tracker = rpc.Tracker()
    server = rpc.Server(tracker_addr=(tracker.host, tracker.port), key=device_key)
    arguments = [tracker.port, "llvm", 4, 28, "resnet-8"]
port, n_trial, pixels = (int(arguments[k]) for k in (0, 2, 3))
target = armillary.target.Target(arguments[1])
network = arguments[4]
log_file = "%s.%s.log" % (device_key, network)
dtype = "float32"

tuning_option = {
    "log_filename": log_file,
    "tuner": "xgb",
    "n_trial": n_trial,
    "early_stopping": 800,
    "measure_option": autotvm.measure_option(
        builder=autotvm.LocalBuilder(build_func="ndk" if use_android else "default"),
        runner=autotvm.RPCRunner(device_key, host="127.0.0.1", port=port, number=5, timeout=60),
    ),
}


# %% [markdown]
# The network.
# %%
def get_network(name, batch_size):
    input_shape = (batch_size, 3, pixels, pixels)
    output_shape = (batch_size, 1000)
    if "resnet" in name:
        n_layer = int(name.split("-")[1])
        mod, params = relay.testing.resnet.get_workload(
            num_layers=n_layer, batch_size=batch_size, dtype=dtype, image_shape=input_shape[1:]
        )
    elif name == "mobilenet":
        mod, params = relay.testing.mobilenet.get_workload(batch_size=batch_size)
    else:
        raise ValueError("Unsupported network: " + name)
    return mod, params, input_shape, output_shape


# %% [markdown]
# Every convolution is a task: a tuner proposes configurations, which are built here and timed on the board.
# %%
def tune_tasks(
    tasks,
    measure_option,
    tuner="xgb",
    n_trial=1000,
    early_stopping=None,
    log_filename="tuning.log",
    use_transfer_learning=True,
):
    tmp_log_file = log_filename + ".tmp"
    if os.path.exists(tmp_log_file):
        os.remove(tmp_log_file)
    for i, tsk in enumerate(reversed(tasks)):
        prefix = "[Task %2d/%2d] " % (i + 1, len(tasks))
        if tuner == "xgb":
            tuner_obj = XGBTuner(tsk, loss_type="reg")
        elif tuner == "xgb_rank_curve":
            tuner_obj = XGBTuner(tsk, loss_type="rank", feature_type="curve")
        elif tuner == "ga":
            tuner_obj = GATuner(tsk, pop_size=50)
        elif tuner == "random":
            tuner_obj = RandomTuner(tsk)
        elif tuner == "gridsearch":
            tuner_obj = GridSearchTuner(tsk)
        else:
            raise ValueError("Invalid tuner: " + tuner)
        if use_transfer_learning:
            if os.path.isfile(tmp_log_file):
                tuner_obj.load_history(autotvm.record.load_from_file(tmp_log_file))
        tsk_trial = min(n_trial, len(tsk.config_space))
        tuner_obj.tune(
            n_trial=tsk_trial,
            early_stopping=early_stopping,
            measure_option=measure_option,
            callbacks=[
                autotvm.callback.progress_bar(tsk_trial, prefix=prefix),
                autotvm.callback.log_to_file(tmp_log_file),
            ],
        )
    autotvm.record.pick_best(tmp_log_file, log_filename)
    os.remove(tmp_log_file)


# %% [markdown]
# Tune, compile with the best configurations of the log, send the package to the board, and time it there.
# %%
def tune_and_evaluate(tuning_opt):
    print("Extract tasks...")
    mod, params, input_shape, _ = get_network(network, batch_size=1)
    tasks = autotvm.task.extract_from_program(
        mod["main"], target=target, params=params, ops=(relay.op.get("nn.conv2d"),)
    )
    print("Tuning...")
    tune_tasks(tasks, **tuning_opt)
    with autotvm.apply_history_best(log_file):
        print("Compile...")
        with armillary.transform.PassContext(opt_level=3):
            lib = relay.build_module.build(mod, target=target, params=params)
        tmp = tempdir()
        if use_android:
            from armillary.contrib import ndk

            filename = "net.so"
            lib.export_library(tmp.relpath(filename), ndk.create_shared)
        else:
            filename = "net.tar"
            lib.export_library(tmp.relpath(filename))
        print("Upload...")
        remote = autotvm.measure.request_remote(device_key, "127.0.0.1", port, timeout=10000)
        remote.upload(tmp.relpath(filename))
        rlib = remote.load_module(filename)
        dev = remote.device(str(target), 0)
        module = runtime.GraphModule(rlib["default"](dev))
        data = armillary.nd.array((np.random.uniform(size=input_shape)).astype(dtype))
        module.set_input("data", data)
        print("Evaluate inference time cost...")
        print(module.benchmark(dev, number=1, repeat=10))
        seconds = module.module.time_evaluator("run", dev, number=1, repeat=2)()
        assert len(seconds.results) == 2 and seconds.mean > 0


tune_and_evaluate(tuning_option)
