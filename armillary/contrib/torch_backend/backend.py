"""The backend that `torch.compile(model, backend="armillary")` names.

In: a graph of Dynamo and example inputs. Out: a function that runs it. Invariant: AOTAutograd makes the graph
functional and lowers it to ATen operators, of which those that have a rule stay as they are, and so do resizes
(whole_resizes.py); a graph that records gradients, or lies on another device than the CPU, runs in eager mode, which
one line says.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._guards import TracingContext

from armillary.contrib.torch_backend.options import Options, options_of
from armillary.contrib.torch_backend.partition import Divided
from armillary.contrib.torch_backend.whole_resizes import as_aten, keep_whole
from armillary.frontend.pytorch.fx_graph import target_name
from armillary.frontend.pytorch.table import aten_rule
from armillary.frontend.values import Value

if TYPE_CHECKING:
    from torch.fx import GraphModule

_LOG = logging.getLogger(__name__)
Run = Callable[..., Sequence[Value]]


def armillary(
    module: GraphModule, inputs: Sequence[Value], *, options: Mapping[str, object] | None = None, **_: object
) -> Callable[..., Value]:
    """Compile a graph of Dynamo; options: options.py."""
    chosen = options_of(options)
    reason = _reason(inputs)
    if reason:
        _LOG.warning("a graph runs in eager mode: %s", reason)
        eager: Callable[..., Value] = module.forward
        return eager
    lower = aot_autograd(
        fw_compiler=lambda graph, examples: _compiled(graph, examples, chosen),
        decompositions=_decompositions(),
        keep_inference_input_mutations=False,
    )
    keep_whole(module)
    lowered: Callable[..., Value] = lower(module, inputs)
    return lowered


def _reason(inputs: Sequence[Value]) -> str:
    """Why a graph is not compiled; empty where it is."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    if any(v.device.type != "cpu" for v in tensors):
        return "it lies on another device than the CPU"
    if torch.is_grad_enabled() and any(v.requires_grad for v in tensors):
        return "it records gradients; call the model under torch.inference_mode() or torch.no_grad()"
    return ""


@functools.cache  # 0.15 s, and a detector has twenty graphs
def _decompositions() -> dict[object, Callable[..., Value]]:
    """PyTorch's decompositions of the operators that have no rule."""
    table = core_aten_decompositions()
    return {op: rule for op, rule in table.items() if aten_rule(target_name(op)) is None}


def _compiled(graph: GraphModule, examples: Sequence[Value], options: Options) -> Run:
    as_aten(graph)
    context = TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    static = frozenset(getattr(metadata, "static_input_indices", None) or ())
    divided = Divided(graph, static, options)

    def run(arguments: list[Value]) -> Sequence[Value]:
        values = list(arguments)
        arguments.clear()  # the caller's references: memory is free as soon as it can be
        return divided(*values)

    run._boxed_call = True  # type: ignore[attr-defined]  # PyTorch's convention
    return run


def register() -> None:
    """Make the name known to a PyTorch that finds no entry point, as from a source checkout."""
    if "armillary" not in list_backends(exclude_tags=()):
        register_backend(armillary, name="armillary")
