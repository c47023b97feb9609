"""Networks on OpenCL: build, run, inspect, export and load again; the CPU's results are the reference."""

import subprocess

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.base.c_compiler import need_compiler
from armillary.contrib import graph_executor
from armillary.errors import TypeMismatch, UnsupportedError


def _network():
    x, w = relay.var("x", shape=(1, 3, 16, 16)), relay.var("w", shape=(8, 3, 3, 3))
    convolved = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    pooled = relay.nn.max_pool2d(convolved, (2, 2), (2, 2))
    both = relay.concatenate([pooled, relay.exp(pooled)], 1)
    weights = np.random.default_rng(3).standard_normal((8, 3, 3, 3)).astype("float32") * 0.1
    body = relay.nn.softmax(relay.nn.batch_flatten(both))
    return armillary.IRModule.from_expr(relay.Function([x, w], body)), {"w": weights}


def _output(library, device, value):
    module = graph_executor.GraphModule(library["default"](device))
    module.set_input("x", value)
    module.run()
    return module.get_output(0).numpy()


@pytest.fixture(scope="module")
def built():
    mod, params = _network()
    value = np.random.default_rng(4).random((1, 3, 16, 16)).astype("float32")
    wanted = _output(relay.build(mod, "llvm", params=params), armillary.cpu(), value)
    return relay.build(mod, "opencl", params=params), value, wanted


@needs_opencl
def test_a_network_computes_what_it_does_on_the_cpu(built):
    library, value, wanted = built
    np.testing.assert_allclose(_output(library, armillary.opencl(), value), wanted, rtol=1e-5, atol=1e-8)


@needs_opencl
@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_a_package_runs_after_it_was_loaded(built, name, tmp_path):
    library, value, wanted = built
    library.export_library(tmp_path / name)
    loaded = armillary.runtime.load_module(tmp_path / name)
    np.testing.assert_allclose(_output(loaded, armillary.opencl(), value), wanted, rtol=1e-5, atol=1e-8)
    (module,) = loaded.imported_modules
    assert module.type_key == "opencl" and module.get_source() == library.get_lib().imported_modules[0].get_source()


def test_the_kernels_are_an_imported_module(built):
    modules = [m for m in built[0].get_lib().imported_modules if m.type_key == "opencl"]
    assert len(modules) == 1
    assert "__kernel" in modules[0].get_source() and "(__global float* restrict p0" in modules[0].get_source()


@needs_opencl
def test_a_package_for_opencl_does_not_run_on_the_cpu(built):
    with pytest.raises(armillary.errors.ArmillaryError, match="runs on type 4"):
        built[0]["default"](armillary.cpu())


@needs_opencl
def test_inputs_of_a_wrong_shape_are_refused(built):
    module = graph_executor.GraphModule(built[0]["default"](armillary.opencl()))
    with pytest.raises(TypeMismatch, match="shape"):
        module.set_input("x", np.zeros((1, 3, 8, 8), "float32"))


@needs_opencl
def test_outputs_stay_on_the_device_until_they_are_asked_for(built):
    library, value, _ = built
    module = graph_executor.GraphModule(library["default"](armillary.opencl()))
    module.set_input("x", armillary.nd.array(value, armillary.opencl()))
    module.run()
    assert module.get_output(0).device == armillary.opencl()
    assert module.module.time(2) > 0 and len(module.module.profile()) > 2


@needs_opencl
def test_the_runner_runs_a_package_on_the_device_and_keeps_its_programs(built, built_runner, tmp_path):
    library, value, wanted = built
    runner = built_runner(need_compiler(""))
    library.export_library(tmp_path / "net.tar")
    np.savez(tmp_path / "in.npz", x=value)
    (tmp_path / "kept").mkdir()
    command = [str(runner), f"--model={tmp_path}/net.tar", "--device=opencl:0", f"--pre-compiled={tmp_path}/kept"]
    files = [f"--input={tmp_path}/in.npz", f"--output={tmp_path}/out.npz", "--run-count=2", "--dry-run=0"]
    done = subprocess.run([*command, *files, "--profile"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Average ExecTime" in done.stdout, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["output_0"], wanted, rtol=1e-5, atol=1e-8)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.suffix == ".clbin" and kept.stat().st_size > 1000
    refused = subprocess.run(
        [str(runner), f"--model={tmp_path}/net.tar", "--device=opencl:15"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1 and "there is no device 15" in refused.stderr
    late = subprocess.run([*command, "--kernel-timeout=1e-9"], capture_output=True, text=True, timeout=60, check=False)
    assert late.returncode == 1 and "did not end within 1e-09 s" in late.stderr, late.stderr


def test_a_list_of_targets_is_a_device_and_its_host():
    mod, params = _network()
    library = relay.build(mod, "opencl, llvm -mtriple=aarch64-linux-gnu", params=params)
    assert library.target.kind.name == "opencl" and library.target.host.mtriple == "aarch64-linux-gnu"
    with pytest.raises(UnsupportedError, match="2 devices"):
        relay.build(mod, "opencl, opencl -device=adreno, llvm", params=params)
