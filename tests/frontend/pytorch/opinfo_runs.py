"""PyTorch's own samples of its operators, run through our rules and the reference interpreter.

In: an ATen core operator's name as OpInfo has it, a dtype. Out: whether each sample gives what eager PyTorch gives.
Invariant: a sample is skipped only where eager itself refuses it, or where its result is complex.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch_runs import leaves, torch

from armillary.base.aliases import Array
from armillary.frontend.pytorch.exported import decomposed
from armillary.frontend.pytorch.fx_graph import FxWalk
from armillary.frontend.pytorch.tensors import array_of, dtype_name
from armillary.frontend.values import is_tensor
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Expr, Function, Tuple, Var
from armillary.relay.types import tensor_type


class Sampled(torch.nn.Module):
    """A call of an operator whose tensors are the inputs."""

    def __init__(self, function: Any, spec: Any, others: Sequence[Any]) -> None:
        super().__init__()
        self.function, self.spec, self.others = function, spec, others

    def forward(self, *tensors: Any) -> Any:
        rest = iter(tensors)
        flat = [next(rest) if isinstance(v, str) and v == "<tensor>" else v for v in self.others]
        args, kwargs = torch.utils._pytree.tree_unflatten(flat, self.spec)
        return self.function(*args, **kwargs)


def samples_of(op: Any, dtype: Any, most: int) -> Iterator[tuple[Sampled, list[Any]]]:
    """Calls of an operator with tensors of a dtype."""
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:most]:
        flat, spec = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [v.contiguous() for v in flat if isinstance(v, torch.Tensor)]
        others = ["<tensor>" if isinstance(v, torch.Tensor) else v for v in flat]
        yield Sampled(op.op, spec, others), tensors


def imported(model: Sampled, tensors: Sequence[Any]) -> list[Array]:
    """The results by our rules and the reference interpreter."""
    program = decomposed(torch.export.export(model, tuple(tensors)))
    walk = FxWalk("<sample>")
    values: list[Any] = []
    arrays: dict[str, Array] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT" and type(spec.arg).__name__.startswith("Tensor"):
            tensor = tensors[len(arrays)]
            name = spec.arg.name
            values.append(Var(name, tensor_type(tuple(tensor.shape), dtype_name(tensor.dtype))))
            arrays[name] = array_of(tensor)
        elif spec.kind.name == "USER_INPUT":
            values.append(getattr(spec.arg, "value", None))
        else:
            held = program.constants if spec.target in program.constants else program.state_dict
            values.append(walk.folder.give(Constant(array_of(held[spec.target]))))
    results = [v for v in walk.run(program.graph_module, values) if is_tensor(v)]
    body: Expr = Tuple(tuple(results))
    params = tuple(v for v in values if isinstance(v, Var))
    got = evaluate(Function(params, body), arrays)
    return [np.asarray(v) for v in got]


def difference(op: Any, model: Sampled, tensors: Sequence[Any]) -> str:
    """What differs from eager; empty where nothing does."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        wanted = [array_of(t) for t in leaves(model(*(t.clone() for t in tensors)))]
        got = imported(model, tensors)
    if [(g.shape, str(g.dtype)) for g in got] != [(w.shape, str(w.dtype)) for w in wanted]:
        return f"{[(g.shape, str(g.dtype)) for g in got]} instead of {[(w.shape, str(w.dtype)) for w in wanted]}"
    for ours, theirs in zip(got, wanted, strict=True):
        if not np.allclose(ours.astype("float64"), theirs.astype("float64"), 1e-4, 1e-4, equal_nan=True):
            worst = np.nanmax(np.abs(ours.astype("float64") - theirs.astype("float64")))
            return f"differs by {worst}"
    return ""
