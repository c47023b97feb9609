"""PyTorch's own samples of its operators, run through our rules and the reference interpreter.

In: an ATen core operator's name as OpInfo has it, a dtype. Out: whether each sample gives what eager PyTorch gives.
Invariant: a sample is skipped only where PyTorch itself refuses it; complex results are compared by parts; where
elements are equal, PyTorch does not say which of them `sort` and others name: only their values are compared.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np
from torch_runs import torch

from armillary import errors
from armillary.base.aliases import Array
from armillary.errors import ArmillaryError
from armillary.frontend.pytorch.complex_values import is_complex
from armillary.frontend.pytorch.exported import decomposed, number
from armillary.frontend.pytorch.fx_graph import FxWalk
from armillary.frontend.pytorch.tensors import array_of, dtype_name
from armillary.frontend.values import is_tensor
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Expr, Function, Tuple, Var
from armillary.relay.types import tensor_type

DTYPES = (torch.float32, torch.int64, torch.bool)
_OF_PYTORCH, _WRONG = "PyTorch: ", "differs: "
LEFT_OUT = {  # reasons and patterns of names of OpInfo's rows; docs/limits.md names them, too
    "random numbers": (
        *(
            "bernoulli*",
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "multinomial",
            "normal*",
            "rand*",
            "uniform",
        ),
        *("nn.functional.*dropout*", "nn.functional.fractional_max_pool*", "nn.functional.rrelu", "*_lowrank"),
    ),
    "memory as it is found": ("empty*", "new_empty*", "resize_*"),
    "sparse and jagged tensors": ("*sparse*", "*jagged*", "*coalesce*"),
    "code of NVIDIA's alone": (
        "jiterator*",
        "torch._scaled_mm*",
        "*flash_attention*",
        "*efficient_attention*",
        "*cudnn*",
    ),
    "factors of matrices": (
        *(f"linalg.{name}*" for name in ("cholesky", "cond", "det", "eig", "householder", "inv", "ldl", "lstsq", "lu")),
        *(f"linalg.{name}*" for name in ("matrix_rank", "pinv", "qr", "slogdet", "solve", "svd", "tensorinv")),
        *("linalg.tensorsolve", "cholesky*", "geqrf", "lu*", "ormqr", "qr", "svd", "pinverse", "triangular_solve"),
        *("logdet", "matrix_exp", "linalg.matrix_exp"),
    ),
    "functions of statistics and physics": (
        *(
            "special.*bessel*",
            "special.*polynomial*",
            "special.i[01]*",
            "special.zeta",
            "special.ndtri",
            "special.airy_ai",
        ),
        *("special.erfcx", "special.polygamma*", "polygamma*", "mvlgamma*", "igamma*", "i0", "digamma", "lgamma"),
        *("nextafter", "hash_tensor"),
    ),
    "derivatives": ("*_backward",),
}
TIED = ("sort", "topk", "kthvalue", "median", "mode", "nanmedian", "msort", "argsort")
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


def without(name: str) -> str:
    """Why a row of OpInfo has no place in a compiler of inference; empty where it has one."""
    rows = ((reason, pattern) for reason, patterns in LEFT_OUT.items() for pattern in patterns)
    return next((reason for reason, pattern in rows if fnmatch(name, pattern)), "")


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


def full_name(info: Any) -> str:
    """The name of a row of OpInfo, with its variant."""
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else str(info.name)


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


class Joined(torch.nn.Module):
    """Several calls in one program."""

    def __init__(self, parts: Sequence[tuple[Sampled, list[Any]]]) -> None:
        super().__init__()
        self.parts = [(model, len(tensors)) for model, tensors in parts]

    def forward(self, *tensors: Any) -> list[Any]:
        rest = iter(tensors)
        return [model(*itertools.islice(rest, count)) for model, count in self.parts]


def samples_of(op: Any, dtype: Any, most: int) -> Iterator[tuple[Sampled, list[Any]]]:
    """Calls of an operator with dense tensors of a dtype."""
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:most]:
        flat, spec = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [v for v in flat if isinstance(v, torch.Tensor)]
        if any(v.layout != torch.strided for v in tensors):
            continue
        tensors = [v.contiguous() for v in tensors]
        others = ["<tensor>" if isinstance(v, torch.Tensor) else v for v in flat]
        yield Sampled(op.op, spec, others, op.name in TIED and dtype != torch.float32), tensors


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
    results = [v if is_tensor(v) else number(v) for v in values if v is not None]
    body: Expr = Tuple(tuple(results))
    got = evaluate(Function(params, body), arrays)
    return [np.asarray(v) for v in got]


def outcome(model: torch.nn.Module, tensors: Sequence[Any]) -> str:
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


def outcomes(info: Any, most: int) -> Iterator[tuple[str, str]]:
    """For each sample of a row its dtype and outcome, in one program where all are right: exporting takes the time."""
    torch.manual_seed(0)
    dtypes = (d for d in DTYPES if d in info.supported_dtypes("cpu"))
    calls = [(str(dtype), *sample) for dtype in dtypes for sample in samples_of(info, dtype, most)]
    joined = Joined([(model, tensors) for _, model, tensors in calls])
    are_right = not outcome(joined, [t for _, _, tensors in calls for t in tensors])
    for dtype, model, tensors in calls:
        yield dtype, "" if are_right else outcome(model, tensors)


def kind_of(text: str) -> str:
    """What an outcome is: right, wrong, refused by us or by PyTorch, or a fault of ours."""
    if not text or text.startswith(_WRONG):
        return "wrong" if text else "right"
    if text.startswith(_OF_PYTORCH):
        return "PyTorch refuses"
    return "refused" if issubclass(getattr(errors, text.partition(":")[0], Exception), ArmillaryError) else "fault"


def _difference(got: Sequence[Array], wanted: Sequence[Array]) -> str:
    if [(g.shape, str(g.dtype)) for g in got] != [(w.shape, str(w.dtype)) for w in wanted]:
        return (
            f"{_WRONG}{[(g.shape, str(g.dtype)) for g in got]} instead of {[(w.shape, str(w.dtype)) for w in wanted]}"
        )
    for ours, theirs in zip(got, wanted, strict=True):
        if not np.allclose(ours.astype("float64"), theirs.astype("float64"), 1e-4, 1e-4, equal_nan=True):
            worst = np.nanmax(np.abs(ours.astype("float64") - theirs.astype("float64")))
            return f"{_WRONG}by {worst}"
    return ""
