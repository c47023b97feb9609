"""The command line of Relay's time, `python -m armillary.driver.tvmc`, and the same steps in Python.

    from armillary.driver import tvmc

    model = tvmc.load("resnet50.onnx")
    records = tvmc.tune(model, target="opencl -device=adreno", rpc_key="android", hostname="127.0.0.1", port=9190)
    package = tvmc.compile(model, target="opencl -device=adreno", tuning_records=records, package_path="network.tar")
    print(tvmc.run(package, device="cl", benchmark=True))

In: a model file. Out: a TVMCModel (module and parameters), a log of trials, a TVMCPackage (a file), a TVMCResult
(arrays and times). Invariant: a step does what the command of its name does (`cli/`). Names are found on first use.
"""

from armillary.base.lazy import lazy_names

_HERE = "armillary.driver.tvmc"
_MODULES = (
    "autotuner",
    "compiler",
    "composite_target",
    "config_options",
    "frontends",
    "main",
    "model",
    "pass_config",
    "pass_list",
    "registry",
    "result_utils",
    "runner",
    "shape_parser",
    "target",
    "tracker",
    "transform",
    "workspace_pools",
)
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "load": f"{_HERE}.frontends:load",
        "tune": f"{_HERE}.autotuner:tune",
        "compile": f"{_HERE}.compiler:compile",
        "run": f"{_HERE}.runner:run",
        **{name: f"{_HERE}.model:{name}" for name in ("TVMCModel", "TVMCPackage", "TVMCResult")},
        "TVMCException": "armillary.errors:ArmillaryError",
        "TVMCImportError": "armillary.errors:UnsupportedError",
        **{name: f"{_HERE}.{name}" for name in _MODULES},
    },
)
