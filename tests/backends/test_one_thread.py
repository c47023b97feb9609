"""A back end that lives outside the package builds a network: no file of the package knows of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import one_thread  # noqa: F401  (which makes the target known)
import pytest

from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import InternalError
from armillary.relay.testing import resnet
from armillary.runtime import load_module
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.target.kind import TargetKind
from armillary.target.kinds import register_kind
from armillary.transform import PassContext

SHAPE = (1, 3, 40, 40)


@pytest.fixture(scope="module")
def network() -> tuple[Any, Any]:
    mod, params = resnet.get_workload(num_layers=18, image_shape=SHAPE[1:], num_classes=10)
    rng = np.random.default_rng(0)  # small numbers: no batch norm saturates
    return mod, {name: rng.normal(size=a.shape).astype("float32") * 0.05 + 0.01 for name, a in params.items()}


def run(library: Any, data: Any) -> Any:
    module = graph_executor.GraphModule(library["default"](cpu()))
    module.set_input("data", data)
    module.run()
    return module.get_output(0).numpy()


def test_resnet_18_is_built_by_a_back_end_of_a_page(network: tuple[Any, Any], tmp_path: Path) -> None:
    mod, params = network
    data = np.random.default_rng(1).normal(size=SHAPE).astype("float32")
    with PassContext(opt_level=3):
        library = relay.build(mod, "one_thread", params=params)
        wanted = run(relay.build(mod, "llvm", params=params), data)
    np.testing.assert_allclose(run(library, data), wanted, rtol=1e-3, atol=1e-5)
    text = library.get_source("relay")
    assert "NHWC" in text and not re.search(r"contrib|cpu\.", text), "its own layout"
    rows = library.descriptor.functions.values()
    assert all(phase.extent == 1 for row in rows for phase in row.phases), "one thread"
    assert '"algorithm": "taps outside"' in library.get_graph_json().replace("\\", ""), "its algorithm is told"
    library.export_library(tmp_path / "net.so")
    np.testing.assert_allclose(run(load_module(str(tmp_path / "net.so")), data), wanted, rtol=1e-3, atol=1e-5)


def test_a_kind_and_a_family_are_registered_once() -> None:
    with pytest.raises(InternalError, match="two kinds of targets are named 'one_thread'"):
        register_kind(TargetKind("one_thread", 1, "", "one_thread", ()))
    assert "one_thread" in Target.list_kinds()
