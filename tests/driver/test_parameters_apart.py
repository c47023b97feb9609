"""`lib["remove_params"]()`: a network that is exported without its parameters runs when they are set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary import relay, runtime
from armillary.contrib import graph_executor
from armillary.errors import ExecutionError
from armillary.runtime.device import cpu
from armillary.transform import PassContext


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_a_network_without_parameters_gets_them_where_it_runs(tmp_path: Path, suffix: str) -> None:
    random = np.random.default_rng(2)
    x = relay.var("x", shape=(1, 8, 10, 10))
    weight = relay.const(random.standard_normal((8, 8, 3, 3)).astype("float32"))
    y = relay.nn.conv2d(x, weight, kernel_size=(3, 3), channels=8, padding=(1, 1))
    with PassContext(opt_level=3):
        whole = relay.build(relay.Function([x], relay.nn.relu(y)), "llvm -mcpu=haswell")
    data = random.standard_normal((1, 8, 10, 10)).astype("float32")
    wanted = graph_executor.GraphModule(whole["default"](cpu()))
    wanted.run(x=data)
    path = tmp_path / f"bare{suffix}"
    bare = whole["remove_params"]()
    assert len(bare.params) == 0 < len(whole.params)
    bare.export_library(path)
    loaded = graph_executor.GraphModule(runtime.load_module(path)["default"](cpu()))
    loaded.set_input("x", data)
    with pytest.raises(ExecutionError, match="was never set"):
        loaded.run()
    loaded.load_params(relay.save_param_dict(whole.get_params()))
    loaded.run()
    np.testing.assert_array_equal(loaded.get_output(0).numpy(), wanted.get_output(0).numpy())
