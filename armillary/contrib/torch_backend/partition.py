"""What of a graph is compiled and what stays in eager mode.

In: a graph module of ATen operators. Out: a function that runs it: one compiled graph where every operator has a rule,
else the graph with its parts compiled between what stays. Invariant: a part that cannot be built runs in eager mode,
with the reason in the report; results are the same either way.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from armillary.contrib.torch_backend.options import Options
from armillary.contrib.torch_backend.sessions import CompiledGraph
from armillary.errors import ArmillaryError
from armillary.frontend.pytorch.fx_graph import missing_operators, target_name
from armillary.frontend.pytorch.table import aten_rule
from armillary.frontend.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import GraphModule, Node

_LOG = logging.getLogger(__name__)
_SIZES = ("sym_size", "sym_numel", "sym_stride", "sym_storage_offset")


class WithRule(OperatorSupportBase):  # type: ignore[misc]  # torch declares no types
    """Whether a node computes tensors by an operator that has a rule."""

    def __init__(self, refused: set[str]) -> None:
        self.refused = refused

    def is_node_supported(self, submodules: Mapping[str, object], node: Node) -> bool:
        """Whether a node may be compiled."""
        if node.op != "call_function":
            return False
        if node.target is getattr:
            return False
        if "getitem" in str(node.target):
            return self.is_node_supported(submodules, node.args[0])
        name = target_name(node.target)
        is_size = name.split(".")[1].startswith(_SIZES)
        return name not in self.refused and not is_size and hasattr(node.target, "_schema") and _is_ours(name, node)


def _is_ours(name: str, node: Node) -> bool:
    around = [v for n in (node, *node.all_input_nodes) for v in _tensors(n.meta.get("val"))]
    return aten_rule(name, any(v.is_complex() for v in around)) is not None


def _tensors(value: object) -> list[torch.Tensor]:
    many = value if isinstance(value, list | tuple) else [value]
    return [v for v in many if isinstance(v, torch.Tensor)]


class Divided:
    """A graph that decides, at its first call, what of it is compiled."""

    def __init__(self, module: GraphModule, static: frozenset[int], options: Options) -> None:
        self.module, self.static, self.options = module, static, options
        self.whole: CompiledGraph | None = None if missing_operators(module) else CompiledGraph(module, static, options)
        self.divided: Callable[..., Sequence[Value]] | None = None
        self.reasons: list[str] = []

    def __call__(self, *arguments: Value) -> Sequence[Value]:
        """The results of the graph."""
        if self.divided is not None:
            return self.divided(*arguments)
        if self.whole is not None:
            try:
                is_new = not self.whole.sessions
                result = self.whole(*arguments)
                if is_new:
                    each = f", for each shape anew: {self.whole.reason}" if self.whole.reason else ""
                    self.tell(f"{len(self.module.graph.nodes)} nodes compiled as one{each}")
                return result
            except ArmillaryError as error:
                self.reasons.append(str(error).splitlines()[0])
                self.whole = None
        self.divided = self.parts()
        return self.divided(*arguments)

    def parts(self) -> Callable[..., Sequence[Value]]:
        """The graph with what has a rule compiled in parts."""
        missing = missing_operators(self.module)
        self.reasons += [f"{name} ({count}): no rule" for name, count in missing.items()]
        partitioner = CapabilityBasedPartitioner(
            self.module, WithRule(set(missing)), allows_single_node_partition=False
        )
        fused: GraphModule = partitioner.partition_and_fuse()
        places = {n.name: k for k, n in enumerate(n for n in fused.graph.nodes if n.op == "placeholder")}
        count = 0
        for node in fused.graph.nodes:
            if node.op == "call_module":
                static = frozenset(k for k, a in enumerate(node.args) if places.get(a.name, -1) in self.static)
                part = Part(getattr(fused, node.target), static, self.options, self.reasons)
                setattr(fused, node.target, part)
                count += 1
        eager = Counter(target_name(n.target) for n in fused.graph.nodes if n.op == "call_function")
        message = ", ".join(f"{name} ({times})" for name, times in eager.items() if "getitem" not in name)
        self.tell(f"{count} parts compiled; in eager mode: {message or 'nothing'}; {'; '.join(self.reasons)}")
        run: Callable[..., Sequence[Value]] = fused
        return run

    def tell(self, text: str) -> None:
        """The report of this graph."""
        _LOG.info("%s", text)
        if self.options.report is not None:
            self.options.report(text)


class Part(torch.nn.Module):  # type: ignore[misc]  # torch declares no types
    """A part of a divided graph; one that cannot be built stays in eager mode."""

    def __init__(self, module: GraphModule, static: frozenset[int], options: Options, reasons: list[str]) -> None:
        super().__init__()
        self.eager, self.reasons = module, reasons
        self.compiled: CompiledGraph | None = CompiledGraph(module, static, options)
        outputs = next(n for n in module.graph.nodes if n.op == "output").args[0]
        self.is_single = not isinstance(outputs, list | tuple)

    def forward(self, *arguments: Value) -> Value:
        """What the part gives."""
        if self.compiled is not None:
            try:
                results = self.compiled(*arguments)
                return results[0] if self.is_single else tuple(results)
            except ArmillaryError as error:
                self.reasons.append(str(error).splitlines()[0])
                _LOG.info("a part stays in eager mode: %s", error)
                self.compiled = None
        return self.eager(*arguments)
