"""What the tests of PyTorch's doors share: the framework, running what was imported, comparing with eager."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.base.aliases import Array
from armillary.contrib.graph_executor import GraphModule
from armillary.frontend.pytorch.tensors import array_of
from armillary.ir import IRModule

if "CI" in os.environ:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

TOLERANCE = 1e-4  # of values of the order of one


def built(module: IRModule, params: Mapping[str, Array]) -> GraphModule:
    """The module compiled for this machine."""
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=dict(params))
    return GraphModule(library["default"](armillary.cpu()))


def run(graph: GraphModule, inputs: Sequence[Any]) -> list[Array]:
    """Outputs for tensors in the order of the inputs."""
    for number, value in enumerate(inputs):
        graph.set_input(number, array_of(value))
    graph.run()
    return [graph.get_output(k).numpy() for k in range(graph.get_num_outputs())]


def leaves(value: Any) -> list[Any]:
    """The tensors of what a model returns, in order."""
    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def check_close(got: Sequence[Array], wanted: Any, tolerance: float = TOLERANCE) -> None:
    """The outputs are those of eager PyTorch, in shape, dtype and value."""
    truth = leaves(wanted)
    assert len(got) == len(truth)
    for ours, tensor in zip(got, truth, strict=True):
        theirs = array_of(tensor)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def check_export(model: Any, inputs: Sequence[Any], tolerance: float = TOLERANCE, **named: Any) -> None:
    """A model by torch.export gives what it gives in eager mode."""
    model = model.eval()
    with torch.no_grad():
        wanted = model(*inputs, **named)
        program = torch.export.export(model, tuple(inputs), named)
    module, params = relay.frontend.from_exported_program(program)
    check_close(run(built(module, params), [*inputs, *leaves(named)]), wanted, tolerance)
