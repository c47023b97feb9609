"""PyTorch's own samples of its operators, run through our rules and the reference interpreter.

In: an ATen core operator's name as OpInfo has it, a dtype. Out: whether each sample gives what eager PyTorch gives.
Invariant: a sample is skipped only where PyTorch itself refuses it; complex results are compared by parts; where
elements are equal, PyTorch does not say which of them `sort` and `topk` name first: only their values are compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch_runs import torch

from armillary.base.aliases import Array
from armillary.frontend.pytorch.complex_values import is_complex
from armillary.frontend.pytorch.exported import decomposed
from armillary.frontend.pytorch.fx_graph import FxWalk
from armillary.frontend.pytorch.tensors import array_of, dtype_name
from armillary.frontend.values import is_tensor
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Expr, Function, Tuple, Var
from armillary.relay.types import tensor_type

_OF_PYTORCH = "PyTorch: "
ALIASES = {  # operators that OpInfo has by what calls them; a variant behind the colon
    "_adaptive_avg_pool2d": ("nn.functional.adaptive_avg_pool2d",),
    "_adaptive_avg_pool3d": ("nn.functional.adaptive_avg_pool3d",),
    "_cdist_forward": ("cdist",),
    "_embedding_bag": ("nn.functional.embedding_bag",),
    "_fft_c2r": ("fft.irfft", "fft.hfft"),
    "_fft_r2c": ("fft.rfft", "fft.ihfft"),
    "_local_scalar_dense": ("item",),
    "_log_softmax": ("log_softmax",),
    "_native_batch_norm_legit_no_training": ("nn.functional.batch_norm",),
    "_pdist_forward": ("nn.functional.pdist",),
    "_softmax": ("softmax",),
    "_to_copy": ("to", "float", "long", "bool"),
    "alias": ("alias_copy",),
    "convolution": (
        *("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d"),
        *(f"nn.functional.conv_transpose{n}d" for n in (1, 2, 3)),
    ),
    "index": ("__getitem__",),
    "max_pool2d_with_indices": ("nn.functional.max_pool2d",),
    "max_pool3d_with_indices": ("nn.functional.max_pool3d",),
    **{f"reflection_pad{n}d": ("nn.functional.pad:reflect",) for n in (1, 2, 3)},
    **{f"replication_pad{n}d": ("nn.functional.pad:replicate",) for n in (2, 3)},
    "upsample_bilinear2d": ("nn.functional.interpolate:bilinear",),
    "upsample_nearest2d": ("nn.functional.interpolate:nearest",),
}


def core_operators() -> dict[str, list[str]]:
    """Names of the operators of ATen's core set, with their overloads."""
    names: dict[str, list[str]] = {}
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                names.setdefault(name, []).append(overload)
    return names


def infos_of(name: str) -> list[Any]:
    """OpInfo's rows about an operator of ATen."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = [tuple(alias.partition(":")[::2]) for alias in ALIASES.get(name, ())]
    rows = [op for op in op_db if name in (op.name, op.aten_name, op.name.removeprefix("nn.functional."))]
    return rows or [op for op in op_db if (op.name, op.variant_test_name) in wanted or (op.name, "") in wanted]


class Sampled(torch.nn.Module):
    """A call of an operator whose tensors are the inputs."""

    def __init__(self, function: Any, spec: Any, others: Sequence[Any], has_ties: bool = False) -> None:
        super().__init__()
        self.function, self.spec, self.others, self.has_ties = function, spec, others, has_ties

    def forward(self, *tensors: Any) -> Any:
        rest = iter(tensors)
        flat = [next(rest) if isinstance(v, str) and v == "<tensor>" else v for v in self.others]
        args, kwargs = torch.utils._pytree.tree_unflatten(flat, self.spec)
        result = self.function(*args, **kwargs)
        return result[0] if self.has_ties else result


def samples_of(op: Any, dtype: Any, most: int) -> Iterator[tuple[Sampled, list[Any]]]:
    """Calls of an operator with tensors of a dtype."""
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:most]:
        flat, spec = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [v.contiguous() for v in flat if isinstance(v, torch.Tensor)]
        others = ["<tensor>" if isinstance(v, torch.Tensor) else v for v in flat]
        yield Sampled(op.op, spec, others, op.name in ("sort", "topk") and dtype != torch.float32), tensors


def imported(exported: Any, tensors: Sequence[Any]) -> list[Array]:
    """The results by our rules and the reference interpreter."""
    program = decomposed(exported)
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
    params = tuple(v for v in values if isinstance(v, Var))
    rows = zip(program.graph_signature.output_specs, walk.run(program.graph_module, values), strict=True)
    values = [v.joined() if is_complex(v) else v for spec, v in rows if spec.kind.name == "USER_OUTPUT"]
    results = [v for v in values if is_tensor(v)]
    body: Expr = Tuple(tuple(results))
    got = evaluate(Function(params, body), arrays)
    return [np.asarray(v) for v in got]


def outcome(model: Sampled, tensors: Sequence[Any]) -> str:
    """What differs from eager, or why it does not run; empty where nothing does."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(model, tuple(tensors))
            results = torch.utils._pytree.tree_leaves(model(*(t.clone() for t in tensors)))
        except Exception as error:  # of PyTorch's own, of any kind
            return f"{_OF_PYTORCH}{type(error).__name__}: {error}"
        try:
            got = imported(exported, tensors)
            wanted = [array_of(r) if isinstance(r, torch.Tensor) else np.asarray(r) for r in results]
            if len(got) == len(results):  # numbers have no dtype
                rows = zip(got, wanted, results, strict=True)
                got = [g if isinstance(r, torch.Tensor) else g.astype(w.dtype) for g, w, r in rows]
            return _difference(got, wanted)
        except Exception as error:  # an error of ours, or a fault, which is a failure as well
            return f"{type(error).__name__}: {error}"


def is_taken(text: str) -> bool:
    """Whether an outcome is ours: PyTorch runs and exports the sample."""
    return not text.startswith(_OF_PYTORCH)


def _difference(got: Sequence[Array], wanted: Sequence[Array]) -> str:
    if [(g.shape, str(g.dtype)) for g in got] != [(w.shape, str(w.dtype)) for w in wanted]:
        return f"{[(g.shape, str(g.dtype)) for g in got]} instead of {[(w.shape, str(w.dtype)) for w in wanted]}"
    for ours, theirs in zip(got, wanted, strict=True):
        if not np.allclose(ours.astype("float64"), theirs.astype("float64"), 1e-4, 1e-4, equal_nan=True):
            worst = np.nanmax(np.abs(ours.astype("float64") - theirs.astype("float64")))
            return f"differs by {worst}"
    return ""
